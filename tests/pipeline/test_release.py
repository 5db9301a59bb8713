"""The docs engineer's way: the page from the kept record set, without torch, GPU or network."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from pathlib import Path

import pytest
from pipeline.conftest import COPIED, ROOT, Checkout

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(3000)]
GOLDEN = Path(__file__).parent / "golden"
SETS = sorted(path.name for path in (ROOT / "records").glob("*/") if (path / "SHA256SUMS").exists())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Checkout:
    """No build/ and no training environment at all."""
    folder = tmp_path_factory.mktemp("release") / "a path 文書"
    folder.mkdir()
    for name in (*COPIED, "records"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    return Checkout(folder, folder / "lock")


def rebuild(checkout: Checkout, name: str, **more):
    return checkout.snakemake("report", measure="never", records=f"records/{name}", **more)


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_record_set_is_kept():
    assert SETS


@pytest.mark.parametrize("name", SETS)
def test_the_page_equals_the_golden_one_and_is_the_same_every_time(checkout, name):
    started = time.monotonic()
    result = rebuild(checkout, name)
    print(f"rebuilding the page took {time.monotonic() - started:.1f} s")
    assert result.returncode == 0, result.stdout[-3000:]
    page = checkout.folder / "results" / name / "page"
    first = digests(page)
    shutil.rmtree(page)
    assert rebuild(checkout, name).returncode == 0
    assert digests(page) == first
    for language in ("ja", "en"):
        golden = (GOLDEN / f"{name}.{language}.md").read_text(encoding="utf-8")
        text = (page / language / "index.md").read_text(encoding="utf-8")
        assert text == golden, (
            "if the change is meant: copy the new index.md to tests/pipeline/golden"
        )
    assert "torch" not in result.stdout


@pytest.mark.parametrize("name", SETS)
def test_both_languages_show_the_same_numbers(checkout, name):
    assert rebuild(checkout, name).returncode == 0
    page = checkout.folder / "results" / name / "page"
    for table in json.loads((page / "data/page.json").read_text(encoding="utf-8"))["machines"][0][
        "tables"
    ]:
        for row in table["table"]["rows"]:
            rate = row["samples_per_second"]
            if rate is None:
                continue
            for language in ("ja", "en"):
                text = (page / language / "index.html").read_text(encoding="utf-8")
                assert re.search(rf"{rate['mean']:,.2f}|{rate['mean']:,.1f}", text), row["id"]


def test_tampered_records_are_refused_unless_for_a_draft(checkout):
    name = SETS[0]
    record = next((checkout.folder / "records" / name).rglob("throughput-1.json"))
    kept = record.read_text(encoding="utf-8")
    record.write_text(kept.replace('"repeat"', '"repeat" '), encoding="utf-8")
    refused = rebuild(checkout, name)
    draft = rebuild(checkout, name, draft="true")
    page = (checkout.folder / "results" / name / "page/en/index.html").read_text(encoding="utf-8")
    record.write_text(kept, encoding="utf-8")
    assert refused.returncode != 0
    assert "throughput-1.json" in refused.stdout
    assert draft.returncode == 0, draft.stdout[-2000:]
    assert "DRAFT" in page
