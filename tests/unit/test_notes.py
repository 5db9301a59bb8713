"""The checks on published figures find what is wrong with the published page, and nothing else."""

from pathlib import Path

import pytest
from trainmark import formulas, notes, published_model

PUBLISHED = Path(__file__).parents[2] / "config" / "published" / "alibaba-pai.yaml"


@pytest.fixture
def published():
    return published_model.load(PUBLISHED)


def found(published):
    return {(note.table, note.kind): note for note in notes.check(published)}


def test_every_known_inconsistency_is_found_and_no_other(published):
    assert set(found(published)) == {
        ("sharding", "adam"),
        ("sharding", "gradients"),
        ("parallelism", "ranks"),
        ("parallelism", "duplicate"),
        ("onnxruntime", "parameters"),
        ("onnxruntime", "utilisation"),
        ("onnxruntime", "speedup"),
    }


def test_the_numbers_behind_the_notes(published):
    notes_ = found(published)
    assert notes_["parallelism", "ranks"].values == {"needed": 16, "ranks": 4, "twin": "tp4_pp1"}
    duplicate = notes_["parallelism", "duplicate"].values
    assert (duplicate["here"], duplicate["there"]) == (9.63, 9.57)
    assert notes_["onnxruntime", "parameters"].values["expected"] == 109_483_778
    use = notes_["onnxruntime", "utilisation"].values
    assert use["share"] == pytest.approx(2.21, abs=0.005)
    assert use["longest"] == pytest.approx(245, abs=2)
    assert notes_["onnxruntime", "speedup"].values["computed"] == pytest.approx(15.67, abs=0.005)
    adam = notes_["sharding", "adam"].values
    assert adam["moments"] == pytest.approx(10.5, abs=0.05)
    assert adam["with_master"] == pytest.approx(15.8, abs=0.05)
    gradients = notes_["sharding", "gradients"].values
    assert gradients["saved"] == 16
    assert gradients["expected"] == pytest.approx(1880, abs=2)


def test_corrected_figures_have_no_notes(published):
    tables = published.tables
    tables["sharding"].claims.adam_state_gb = 10.5
    tables["sharding"].rows["zero2"].peak_memory_mib = 13_800
    tables["parallelism"].rows["tp1_pp1"].samples_per_second = 9.57
    del tables["parallelism"].rows["tp4_pp4"]
    size = tables["onnxruntime"].settings.model_copy(
        update={"sequence_length": 128, "parameters": 109_483_778}
    )
    tables["onnxruntime"].settings = size
    tables["onnxruntime"].claims.speedup.percent = 15.7
    assert notes.check(published) == []


def test_parameter_counts_are_those_counted_on_the_meta_device():
    assert formulas.parameters("bert-pretraining", 12, 768, 30522, 512) == 110_106_428
    assert formulas.parameters("bert-finetuning", 12, 768, 30522, 512) == 109_483_778
    assert formulas.parameters("gpt-pretraining", 24, 2048, 50304, 1024) == 1_313_722_368


def test_published_rows_are_declared_rows():
    from trainmark.config import read_yaml

    declared = {
        table["id"]: {row["id"] for row in table["rows"] if row.get("published", True)}
        for table in read_yaml(PUBLISHED.parents[1] / "tables.yaml")["tables"]
    }
    figures = published_model.load(PUBLISHED).tables
    assert {name: set(table.rows) for name, table in figures.items()} == declared


def test_a_fault_in_the_file_is_told_in_one_message(tmp_path):
    from trainmark.errors import UserError

    path = tmp_path / "x.yaml"
    path.write_text(PUBLISHED.read_text().replace("publisher: Alibaba Cloud", "publisher: 3"))
    with pytest.raises(UserError, match="publisher"):
        published_model.load(path)
