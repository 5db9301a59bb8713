"""`python -m trainmark schemas`: the JSON schemas of what a user writes and of what trainmark writes.

They are generated from the code and kept in config/schemas/ for editors and for other programs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pydantic import BaseModel

from trainmark import config, page_model, published_model, record_model, table_model
from trainmark.canonical import write_atomic

MODELS: dict[str, type[BaseModel]] = {
    "config": config.Settings,
    "tables": config.Tables,
    "hardware": config.Hardware,
    "published": published_model.Published,
    "record": record_model.Record,
    "table": table_model.Table,
    "page": page_model.Page,
}


def texts() -> dict[str, str]:
    """{file name: text} of every schema."""
    return {
        f"{name}.schema.json": json.dumps(model.model_json_schema(), indent=1, sort_keys=True)
        + "\n"
        for name, model in MODELS.items()
    }


def drifted(folder: Path) -> list[str]:
    """The names of schemas that differ from the code."""
    return [
        name
        for name, text in texts().items()
        if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != text
    ]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("config/schemas"))
    parser.add_argument("--check", action="store_true", help="fail if a schema has drifted")
    arguments = parser.parse_args(argv)
    stale = drifted(arguments.out)
    if arguments.check:
        if stale:
            print(f"{arguments.out}: run `make schemas`: {', '.join(stale)}", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        write_atomic(arguments.out / name, texts()[name])
        print(arguments.out / name)
    return 0
