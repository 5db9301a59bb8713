"""The catalogues are complete, and what is wrong with one is found."""

import shutil
from pathlib import Path

import pytest
from trainmark import catalogues

ROOT = Path(__file__).parents[2]
CODE = ROOT / "workflow" / "trainmark"


def test_the_catalogues_are_complete_and_clean():
    assert list(catalogues.faults(ROOT / "report", CODE)) == []


@pytest.fixture
def report(tmp_path):
    shutil.copytree(ROOT / "report", tmp_path / "report")
    return tmp_path / "report"


def change(report, old, new, language="ja"):
    path = report / "locales" / language / "messages.po"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('msgstr "スループット"', 'msgstr ""', "not translated"),
        ('msgid "Throughput"', '#, fuzzy\nmsgid "Throughput"', "fuzzy"),
        ('msgid "Throughput"', 'msgid "Thruput"', "stale"),
        ('msgid "Throughput"', 'msgid "Thruput"', "missing: 'Throughput'"),
        ("ステップ %(step)s", "ステップ %(stop)s", "placeholders differ"),
        ("ランク %(rank)s", "ランク%(rank)s", "a space belongs"),
        ("本文へ移動", "本文 へ移動", "no space inside"),
        ("本文へ移動", "本文へ移動１", "full-width digit"),
        ("ピークメモリ (MiB)", "ピークメモリー (MiB)", "is written"),
    ],
)
def test_faults_are_found(report, old, new, told):
    change(report, old, new)
    assert [line for line in catalogues.faults(report, CODE) if told in line]


def test_a_new_message_in_a_template_is_missing_until_updated(report):
    template = report / "templates" / "page.html.j2"
    template.write_text(template.read_text() + '{{ _("Brand new") }}')
    assert [line for line in catalogues.faults(report, CODE) if "Brand new" in line]
    catalogues.update(report, CODE)
    left = list(catalogues.faults(report, CODE))
    assert left == ["ja: not translated: 'Brand new'"]  # English has its own text


def test_updating_changes_nothing_when_all_is_well(report):
    before = {p: p.read_bytes() for p in report.rglob("*.po")}
    catalogues.update(report, CODE)
    assert {p: p.read_bytes() for p in report.rglob("*.po")} == before


def test_an_unknown_language_is_a_clear_error(report):
    from trainmark.errors import UserError

    with pytest.raises(UserError, match="no catalogue for 'fr'; there is: en, ja"):
        catalogues.load(report / "locales", "fr")
