"""Writes the page: HTML and Markdown per language, fragments, and the data behind them."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

from babel import Locale
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from trainmark import catalogues, page_view, tables
from trainmark.page_model import Page


def render(page: Page, report: Path, out: Path) -> None:
    """Render every language of a page below `out`. Folders of languages no longer asked for go."""
    views = {}
    for language in page.languages:
        text = catalogues.load(report / "locales", language)
        views[language] = (text, page_view.build(page, text))
    _clean(out)
    style = _minified((report / "static" / "trainmark.css").read_text(encoding="utf-8"))
    script = _without_blank_lines((report / "static" / "page.js").read_text("utf-8")).strip()
    names = [{"code": code, "name": _native_name(code)} for code in page.languages]
    for language, (text, view) in views.items():
        shared = {
            **view,
            "language": language,
            "languages": names,
            "style": style,
            "script": script,
            "policy": _policy(style, script),
        }
        environment = _environment(report, text)
        _write_language(environment, shared, out / language)
    _write_index(report, out, names, style)
    _write(out / "trainmark.css", style)
    _write_data(page, out / "data")


def _write(path: Path, text: str) -> None:
    """Write a derived file whole; unlike a record it need not survive a power cut, so no fsync."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def _clean(out: Path) -> None:
    """Remove what an earlier rendering left, and nothing that is not ours."""
    for path in out.glob("*/index.html"):
        shutil.rmtree(path.parent)
    if (out / "data" / "page.json").is_file():
        shutil.rmtree(out / "data")


def _environment(report: Path, text: catalogues.Messages) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(report / "templates"),
        extensions=["jinja2.ext.i18n"],
        autoescape=lambda name: bool(name and name.endswith(".html.j2")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.install_gettext_translations(text, newstyle=True)  # type: ignore[attr-defined]
    environment.filters["md"] = markdown
    return environment


def _write_language(environment: Environment, shared: dict[str, Any], folder: Path) -> None:
    from markupsafe import Markup

    html = {**shared, "style": Markup(shared["style"]), "script": Markup(shared["script"])}
    for machine in html["machines"]:
        for table in machine["tables"]:
            for chart in table["charts"]:
                chart["svg"] = Markup(chart["svg"])
    page = environment.get_template("page.html.j2").render(html)
    _write(folder / "index.html", _without_blank_lines(page))
    fragment = environment.get_template("fragment.html.j2")
    for machine in html["machines"]:
        for table in machine["tables"]:
            text = fragment.render({**html, "machine": machine, "t": table})
            _write(folder / "fragments" / f"{table['anchor']}.html", _without_blank_lines(text))
    text = environment.get_template("page.md.j2").render(shared)
    _write(folder / "index.md", re.sub(r"\n{3,}", "\n\n", text).strip() + "\n")


def _write_index(report: Path, out: Path, names: list[dict[str, str]], style: str) -> None:
    from markupsafe import Markup

    script = _without_blank_lines((report / "static" / "choose.js").read_text("utf-8")).strip()
    environment = Environment(
        loader=FileSystemLoader(report / "templates"), autoescape=True, undefined=StrictUndefined
    )
    text = environment.get_template("index.html.j2").render(
        languages=names,
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
    )
    _write(out / "index.html", text + "\n")


def _write_data(page: Page, folder: Path) -> None:
    _write(folder / "page.json", page.model_dump_json(indent=1) + "\n")
    for index, machine in enumerate(page.machines):
        prefix = "" if index == 0 else f"{machine.id}-"
        for data in machine.tables:
            name = f"{prefix}{data.table.table}"
            _write(folder / f"{name}.json", data.table.model_dump_json(indent=1) + "\n")
            _write(folder / f"{name}.csv", tables.to_csv(data.table))


def _native_name(code: str) -> str:
    locale = Locale.parse(code.replace("-", "_"))
    name = locale.get_display_name(locale) or code
    return name[:1].upper() + name[1:]


def _policy(style: str, script: str) -> str:
    """Nothing but this very style and script; no request at all."""
    parts = ["default-src 'none'", "base-uri 'none'", "form-action 'none'", "img-src data:"]
    parts += [f"style-src '{_hash(style)}'", f"script-src '{_hash(script)}'"]
    return "; ".join(parts)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _minified(style: str) -> str:
    style = re.sub(r"/\*.*?\*/", "", style, flags=re.S)
    return re.sub(r"\s*\n\s*", "\n", style).strip()


def _without_blank_lines(text: str) -> str:
    return re.sub(r"\n\s*\n+", "\n", text).strip() + "\n"


_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~#])")


def markdown(value: Any) -> str:
    """Text as one line of Markdown that shows exactly this text."""
    text = " ".join(str(value).split())
    return _MARKDOWN.sub(r"\\\1", text).replace("&", "&amp;")
