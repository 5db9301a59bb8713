"""Record sets: made once, checked whenever they are read."""

import hashlib
import tarfile

import pytest
from records_factory import Results, make_cause
from trainmark import archive, recordset
from trainmark.errors import UserError


@pytest.fixture
def made(tmp_path):
    results = Results(tmp_path / "results")
    results.declare_all()
    results.measure_all()
    return recordset.write("demo", results.plans, results.records, tmp_path / "records"), results


def test_a_set_gives_the_same_tables_as_the_results(made):
    from trainmark.aggregate import Aggregator

    folder, results = made
    tables, faults = recordset.load(folder)
    assert faults == []
    aggregator = Aggregator(results.plans, results.records)
    assert tables == [aggregator.table(name) for name in aggregator.table_ids]


def test_only_wanted_records_are_kept(tmp_path):
    results = Results(tmp_path / "results")
    results.declare("mixed_precision", "fp32", "bert-pretraining", "ddp", "fp32")
    results.measure("mixed_precision", "fp32", outcome="error", cause=make_cause())
    results.measure("mixed_precision", "fp32")
    folder = recordset.write("demo", results.plans, results.records, tmp_path)
    names = [path.name for path in (folder / "records").rglob("*.json")]
    assert sorted(names) == [
        "memory-1.json", "parity-1.json", "throughput-1.json", "throughput-2.json",
        "throughput-3.json",
    ]  # fmt: skip


def test_the_compressed_file_is_small_and_the_same_every_time(made, tmp_path):
    folder, results = made
    packed = folder.with_name("demo.tar.xz")
    assert packed.stat().st_size < 100_000
    recordset.write("demo", results.plans, results.records, tmp_path / "again")
    again = tmp_path / "again" / "demo.tar.xz"
    assert (
        hashlib.sha256(packed.read_bytes()).digest() == hashlib.sha256(again.read_bytes()).digest()
    )
    with tarfile.open(packed) as file:
        assert "demo/SHA256SUMS" in file.getnames()


def tampered(folder):
    path = next((folder / "records").rglob("throughput-1.json"))
    path.write_text(path.read_text().replace('"ok"', '"ok" ', 1))


def missing(folder):
    next((folder / "records").rglob("throughput-1.json")).unlink()


def foreign(folder):
    (folder / "records" / "mixed_precision" / "extra.json").write_text("{}")


@pytest.mark.parametrize("change", [tampered, missing, foreign])
def test_changed_sets_are_refused_with_a_list_unless_for_a_draft(made, change):
    folder, _ = made
    change(folder)
    with pytest.raises(UserError, match=rf"1 files are not as archived.*\n  {change.__name__}: "):
        recordset.load(folder)
    tables, faults = recordset.load(folder, draft=True)
    assert [fault.kind for fault in faults] == [change.__name__]
    assert len(tables) == 4


def test_a_folder_that_is_no_set_is_refused(tmp_path):
    with pytest.raises(UserError, match="there is no such record set"):
        recordset.load(tmp_path / "nothing")
    with pytest.raises(UserError, match="is no record set"):
        recordset.load(tmp_path)


def test_the_command_refuses_bad_names_empty_results_and_overwriting(made, tmp_path):
    _, results = made
    places = ["--plans", str(results.plans), "--records", str(results.records)]
    for name in ("", "../up", "a b"):
        with pytest.raises(UserError, match="found the name"):
            archive.main(["--name", name, *places, "--out", str(tmp_path)])
    with pytest.raises(UserError, match="exists already"):
        archive.main(["--name", "demo", *places, "--out", str(tmp_path / "records")])
    with pytest.raises(UserError, match="no record"):
        archive.main(["--name", "x", "--plans", str(results.plans), "--records", str(tmp_path)])
