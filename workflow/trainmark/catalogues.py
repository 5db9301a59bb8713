"""`python -m trainmark catalogues`: check (or update) the translations in report/locales/.

Messages are English in the code and the templates. Every language, English too, has a catalogue
`report/locales/<language>/messages.po`, which is read directly: there is nothing to compile.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from collections.abc import Iterator, Sequence
from gettext import NullTranslations, c2py
from pathlib import Path
from typing import Any

from babel.messages import checkers
from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_from_file
from babel.messages.pofile import read_po, write_po

from trainmark.errors import UserError

SOURCE = "en"
KEYWORDS: dict[str, Any] = {
    "gettext": None, "ngettext": (1, 2), "_": None, "N_": None, "say": None,
    "pgettext": ((1, "c"), 2),
}  # fmt: skip
JINJA_OPTIONS = {"newstyle_gettext": "true", "silent": "false", "extensions": "jinja2.ext.i18n"}


def N_(message: str) -> str:  # noqa: N802 (gettext's own name)
    """Marks a message for extraction without translating it yet."""
    return message


class Messages(NullTranslations):
    """One language's messages. Missing ones fall back to English."""

    def __init__(self, language: str, catalogue: Catalog) -> None:
        super().__init__()
        self.language = language
        self.missing: set[str] = set()
        self._plural = c2py(catalogue.plural_expr)
        self._texts: dict[tuple[str | None, str], Any] = {}
        for message in catalogue:
            if message.id and message.string and not message.fuzzy:
                key = message.id[0] if isinstance(message.id, (list, tuple)) else message.id
                self._texts[message.context, key] = message.string

    def gettext(self, message: str) -> str:
        return self._find(None, message)

    def pgettext(self, context: str, message: str) -> str:
        return self._find(context, message)

    def _find(self, context: str | None, message: str) -> str:
        text = self._texts.get((context, message))
        if text is None:
            self.missing.add(message)
            return message
        return str(text)

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        texts = self._texts.get((None, msgid1))
        if texts is None:
            self.missing.add(msgid1)
            return msgid1 if n == 1 else msgid2
        return str(texts[self._plural(n)])

    def has(self, message: str) -> bool:
        return (None, message) in self._texts


def join_sentences(sentences: Sequence[str], text: Messages) -> str:
    """Sentences in a row, with the space that the language puts between them."""
    return sentence_gap(text).join(sentences)


def sentence_gap(text: Messages) -> str:
    """What a language puts between two sentences: a space, or nothing."""
    return text.pgettext("two sentences", "%(first)s %(second)s") % {"first": "", "second": ""}


def path_of(locales: Path, language: str) -> Path:
    return locales / language / "messages.po"


def languages(locales: Path) -> list[str]:
    return sorted(path.parent.name for path in locales.glob("*/messages.po"))


def load(locales: Path, language: str) -> Messages:
    return Messages(language, read(path_of(locales, language), language))


def read(path: Path, language: str) -> Catalog:
    try:
        with path.open("rb") as file:
            return read_po(file, locale=language.replace("-", "_"))
    except FileNotFoundError:
        known = ", ".join(languages(path.parent.parent)) or "none"
        raise UserError(f"{path}: no catalogue for {language!r}; there is: {known}") from None


def extract(report: Path, code: Path) -> Catalog:
    """All messages of the templates and of the modules that translate."""
    template = Catalog(project="trainmark", copyright_holder="the trainmark contributors")
    marker = "from trainmark.catalogues import"
    modules = [path for path in sorted(code.glob("*.py")) if marker in path.read_text("utf-8")]
    for path in [*modules, *sorted((report / "templates").glob("*.j2"))]:
        method, options = ("python", {}) if path.suffix == ".py" else ("jinja2", JINJA_OPTIONS)
        found = extract_from_file(
            method, path, keywords=KEYWORDS, comment_tags=("Translators:",), options=options
        )
        for _, message, comments, context in found:
            location = [(f"{path.parent.name}/{path.name}", 0)]
            template.add(message, None, location, auto_comments=comments, context=context)
    return template


def update(report: Path, code: Path) -> None:
    """Add new messages, drop unused ones; English gets its own text."""
    for language in languages(report / "locales"):
        path = path_of(report / "locales", language)
        catalogue = read(path, language)
        template = extract(report, code)  # anew: update() takes over the template's own messages
        catalogue.update(template, no_fuzzy_matching=True)
        catalogue.obsolete.clear()
        if language == SOURCE:
            fill_with_source(catalogue)
        path.write_bytes(as_bytes(catalogue))


def fill_with_source(catalogue: Catalog) -> None:
    for message in catalogue:
        if message.id and not _is_complete(message):
            message.string = message.id


def as_bytes(catalogue: Catalog) -> bytes:
    for message in catalogue:
        message.locations = sorted({(name, 0) for name, _ in message.locations})
    text = io.BytesIO()
    write_po(text, catalogue, width=100, sort_output=True, include_lineno=False, no_location=False)
    lines = text.getvalue().decode().splitlines(keepends=True)
    dates = ("POT-Creation-Date", "PO-Revision-Date", "Generated-By", "Last-Translator",
             "Language-Team", "Report-Msgid-Bugs-To")  # fmt: skip
    return "".join(
        line for line in lines if not line.startswith(tuple(f'"{d}' for d in dates))
    ).encode()


def _is_complete(message: Message) -> bool:
    strings = message.string if isinstance(message.string, (list, tuple)) else (message.string,)
    return all(strings)


def faults(report: Path, code: Path) -> Iterator[str]:
    """Every missing, fuzzy, stale or broken message, and every breach of the style rules."""
    template = extract(report, code)
    wanted = {(m.context, m.id if isinstance(m.id, str) else m.id[0]) for m in template if m.id}
    for language in languages(report / "locales"):
        catalogue = read(path_of(report / "locales", language), language)
        have = set()
        for message in catalogue:
            if not message.id:
                continue
            key = message.id if isinstance(message.id, str) else message.id[0]
            have.add((message.context, key))
            yield from (
                f"{language}: {text}: {key!r}" for text in _message_faults(message, catalogue)
            )
            if (message.context, key) not in wanted:
                yield f"{language}: stale (no longer used): {key!r}"
            if language == "ja":
                for text in _texts(message):
                    yield from (f"ja: {fault}: {text!r}" for fault in japanese_faults(text))
        yield from (f"{language}: missing: {key!r}" for _, key in sorted(wanted - have, key=str))


def _texts(message: Message) -> list[str]:
    strings = message.string if isinstance(message.string, (list, tuple)) else [message.string]
    return [text for text in strings if text]


def _message_faults(message: Message, catalogue: Catalog) -> Iterator[str]:
    if message.fuzzy:
        yield "fuzzy"
    if not _is_complete(message):
        yield "not translated"
        return
    names = set(
        PLACEHOLDER.findall(" ".join([message.id] if isinstance(message.id, str) else message.id))
    )
    for text in _texts(message):
        if set(PLACEHOLDER.findall(text)) != names:
            yield f"placeholders differ from {sorted(names)}"
    for check in checkers.checkers if names else ():  # a plain "95% of" is no format
        try:
            check(catalogue, message)
        except Exception as error:  # babel's TranslationError, and what its parser raises
            yield str(error)


# --- one spacing rule and one set of terms for Japanese -------------------------------------------

PLACEHOLDER = re.compile(r"%\((\w+)\)[sd]")
_JAPANESE = r"[\u3041-\u309f\u30a1-\u30ff\u4e00-\u9fff々]"
_LATIN = r"[A-Za-z0-9%±×]"
_FULL_WIDTH = r"[\u3001\u3002\uff08\uff09\u300c\u300d\uff1a\u30fb]"
_RULES = (
    (
        re.compile(f"{_JAPANESE}{_LATIN}|{_LATIN}{_JAPANESE}"),
        "a space belongs between Japanese and Latin text",
    ),
    (
        re.compile(f"{_FULL_WIDTH} (?! )|[^ ] {_FULL_WIDTH}"),
        "no space beside full-width punctuation",
    ),
    (re.compile(f"{_JAPANESE} {_JAPANESE}"), "no space inside Japanese text"),
    (
        re.compile(r"[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff05\uff0b]"),
        "full-width digit or letter",
    ),
    (
        re.compile(f"{_JAPANESE}[,.:;!?()]|[(]{_JAPANESE}"),
        "half-width punctuation in Japanese text",
    ),
)
_TERMS = {
    "トランスフォーマー": "Transformer", "メモリー": "メモリ", "スループト": "スループット",
    "パラメーター": "パラメータ", "サーバー": "サーバ", "オプティマイザー": "オプティマイザ",
    "トレーニング": "学習", "ユーザー": "利用者", "コンピューター": "計算機",
}  # fmt: skip


QUOTED_LISTS = {"rows", "lacking"}


def _stand_in(found: re.Match[str]) -> str:
    return "「X」" if found.group(1) in QUOTED_LISTS else "X"


def japanese_faults(text: str) -> Iterator[str]:
    """Breaches of the spacing rule and of the list of terms.

    A placeholder counts as Latin text, but lists of names come in Japanese quotation marks.
    """
    plain = PLACEHOLDER.sub(_stand_in, text).replace("%%", "%")
    for pattern, fault in _RULES:
        if found := pattern.search(plain):
            yield f"{fault} ({found.group()!r})"
    for wrong, right in _TERMS.items():
        if wrong in plain:
            yield f"{wrong!r} is written {right!r} here"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="trainmark catalogues", description=__doc__)
    parser.add_argument("--report", type=Path, default=Path("report"))
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--check", action="store_true", help="list what is wrong (the default)")
    group.add_argument("--update", action="store_true", help="bring catalogues in line with code")
    options = parser.parse_args(argv)
    code = Path(__file__).parent
    if options.update:
        update(options.report, code)
        return 0
    found = list(faults(options.report, code))
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0
