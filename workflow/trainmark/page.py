"""`python -m trainmark page`: render the reference page in every language."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainmark import checks, page_data, page_render, published_model, recordset, tables
from trainmark.aggregate import Aggregator
from trainmark.errors import UserError
from trainmark.page_model import DraftReason
from trainmark.table_model import Table


def tables_of(folder: Path, plans: Path | None, records: Path | None) -> list[Table]:
    """The aggregated tables; those that are declared but not aggregated are made here."""
    if plans is None or records is None:
        return tables.read_folder(folder)
    aggregator = Aggregator(plans, records)
    found = []
    for name in aggregator.table_ids:
        path = folder / f"{name}.json"
        found.append(tables.read(path) if path.is_file() else aggregator.table(name))
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainmark page", description=__doc__)
    parser.add_argument("--tables", type=Path, help="results/<hardware>/tables")
    parser.add_argument("--plans", type=Path, help="build/plans/<hardware>: what is declared")
    parser.add_argument("--records", type=Path, help="results/<hardware>/records")
    parser.add_argument("--more", type=Path, nargs="*", default=[], help="record sets to show too")
    parser.add_argument("--published", type=Path, help="config/published/<name>.yaml")
    parser.add_argument("--report", type=Path, default=Path("report"), help="templates, locales")
    parser.add_argument("--out", type=Path, required=True, help="folder of the page")
    parser.add_argument("--languages", default="ja,en", help="comma-separated catalogues")
    parser.add_argument("--draft", action="store_true", help="stamp the page as a draft")
    parser.add_argument("--strict", action="store_true", help="refuse what `check` refuses")
    return parser


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    languages = [language for language in options.languages.split(",") if language]
    if not languages:
        raise UserError("--languages: name at least one language, such as ja,en")
    machines: list[tuple[str, list[Table]]] = []
    reasons: list[DraftReason] = []
    if options.tables is not None:
        found = tables_of(options.tables, options.plans, options.records)
        machines.append((found[0].hardware if found else "none", found))
        if options.strict and not options.draft:
            _refuse_faults(str(options.tables), found)
    for folder in options.more:
        found, changed = recordset.load(folder, draft=options.draft)
        name = recordset.name_of(folder)
        machines.append((name, found))
        reasons += [DraftReason(kind=f.kind, set=name, file=f.file) for f in changed]
        if not options.draft:
            _refuse_faults(str(folder), found)
    if not machines:
        raise UserError("page: give --tables, or record sets with --more")
    published = published_model.load(options.published) if options.published else None
    page = page_data.build(machines, published, languages, options.draft, reasons)
    page_render.render(page, options.report, options.out)
    for language in languages:
        print(f"page: {options.out / language / 'index.html'}")
    return 0


def _refuse_faults(where: str, tables: list[Table]) -> None:
    found = checks.faults(tables)
    if found:
        listed = "\n  ".join(found[:40])
        raise UserError(
            f"{where}: {len(found)} faults keep this from release (draft=true renders anyway):"
            f"\n  {listed}"
        )
