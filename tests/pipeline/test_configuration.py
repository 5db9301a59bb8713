"""A wrong configuration is refused before anything runs: the file, the key, what was found."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.pipeline


def size(key, value, workload="gpt-pretraining"):
    return lambda h: h["workloads"][workload].__setitem__(key, value)


def row(table, index, **change):
    return lambda t: next(x for x in t["tables"] if x["id"] == table)["rows"][index].update(change)


HARDWARE, TABLES = "config/hardware/cpu.yaml", "config/tables.yaml"
FAULTS = {
    "6 layers at PP 4": (HARDWARE, size("layers", 6), ["parallelism/tp1_pp4", "PP 4", "6 layers"]),
    "3 heads at TP 2": (HARDWARE, size("heads", 3), ["parallelism/tp2_pp1", "TP 2", "3 attention heads"]),
    "global batch 5": (HARDWARE, size("global_batch", 5), ["sharding/oss", "global batch 5", "4 data-parallel"]),
    "TP 3 on 4 ranks": (TABLES, row("parallelism", 1, tensor_parallel=3), ["tp2_pp1", "TP 3", "4 ranks"]),
    "a text for a number": (HARDWARE, size("learning_rate", "1e-4x"), ["learning_rate", "'1e-4x'", "number"]),
    "an unknown key": (HARDWARE, size("layer", 6), ["gpt-pretraining.layer", "not a known key"]),
    "a duplicate row": (TABLES, row("sharding", 1, id="oss"), ["sharding", "'oss'", "twice"]),
    "an unknown strategy": (TABLES, row("sharding", 2, strategy="os"), ["sharding/oss", "'os'", "known are"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    from pipeline.conftest import make_checkout

    return make_checkout(tmp_path_factory.mktemp("configuration") / "trainmark")


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_fault_is_named(checkout, fault):
    name, change, words = FAULTS[fault]
    path = checkout.folder / name
    text = path.read_text(encoding="utf-8")
    checkout.edit(name, change)
    result = checkout.snakemake("report", "-n")
    path.write_text(text, encoding="utf-8")
    assert result.returncode != 0
    assert "Traceback" not in result.stdout
    for word in [name.split("/")[-1], *words]:
        assert word in result.stdout, result.stdout


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"repeat": 5}, ["repeat", "not a known key"]),
        ({"hardware": "v1000"}, ["v1000.yaml", "no such file", "cpu"]),
        ({"repeats": "many"}, ["repeats", "'many'"]),
        ({"repeats": 0}, ["repeats", "found 0", "greater than or equal to 1"]),
        ({"measure": "NO"}, ["measure", "'missing', 'never' or 'again'"]),
        ({"published": "nobody"}, ["published", "'nobody'"]),
    ],
    ids=str,
)
def test_command_line_fault_is_named(checkout, overrides, words):
    result = checkout.snakemake("report", "-n", **overrides)
    assert result.returncode != 0
    assert "Traceback" not in result.stdout
    for word in words:
        assert word in result.stdout, result.stdout


def test_several_faults_are_reported_together(checkout):
    result = checkout.snakemake("report", "-n", repeats=0, hardware="v1000", colour="red")
    assert all(word in result.stdout for word in ("repeats", "v1000", "colour"))


@pytest.mark.parametrize("text", ["", "a: [1", "- 1\n", "\tx: 1"])
def test_broken_yaml(checkout, text):
    path = checkout.folder / "config/tables.yaml"
    kept = path.read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    result = checkout.snakemake("report", "-n")
    path.write_text(kept, encoding="utf-8")
    assert result.returncode != 0
    assert "Traceback" not in result.stdout
    assert "tables.yaml" in result.stdout


def test_v100_dry_run_lists_twenty_rows_and_one_unsupported(checkout):
    result = checkout.snakemake("report", "-n", hardware="v100")
    assert result.returncode == 0, result.stdout[-3000:]
    assert "parallelism/tp4_pp4: unsupported on this hardware" in result.stdout
    assert "of 22 rows on v100 are to be measured" in result.stdout
