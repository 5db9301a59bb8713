"""`python -m trainmark page`: render the reference page in every language."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainmark import page_data, page_render, published_model, tables
from trainmark.aggregate import Aggregator
from trainmark.errors import UserError
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


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="trainmark page", description=__doc__)
    parser.add_argument("--tables", type=Path, required=True, help="results/<hardware>/tables")
    parser.add_argument("--plans", type=Path, help="build/plans/<hardware>: what is declared")
    parser.add_argument("--records", type=Path, help="results/<hardware>/records")
    parser.add_argument("--published", type=Path, help="config/published/<name>.yaml")
    parser.add_argument("--report", type=Path, default=Path("report"), help="templates, locales")
    parser.add_argument("--out", type=Path, required=True, help="folder of the page")
    parser.add_argument("--languages", default="ja,en", help="comma-separated catalogues")
    parser.add_argument("--draft", action="store_true", help="stamp the page as a draft")
    parser.add_argument("--name", help="name of the record set; default: the hardware profile")
    parser.add_argument("--more", type=Path, nargs="*", default=[], help="further record sets")
    options = parser.parse_args(argv)
    found = tables_of(options.tables, options.plans, options.records)
    name = options.name or (found[0].hardware if found else "none")
    machines, reasons = [(name, found)], []
    for folder in options.more:
        from trainmark import recordset

        more, faults = recordset.load(folder, draft=options.draft)
        machines.append((folder.name, more))
        reasons += faults
    languages = [language for language in options.languages.split(",") if language]
    if not languages:
        raise UserError("--languages: name at least one language, such as ja,en")
    published = published_model.load(options.published) if options.published else None
    page = page_data.build(machines, published, languages, options.draft, reasons)
    page_render.render(page, options.report, options.out)
    for language in languages:
        print(f"page: {options.out / language / 'index.html'}")
    return 0
