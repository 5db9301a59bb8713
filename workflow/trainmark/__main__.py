"""`python -m trainmark COMMAND`: one module per command, imported only when it is asked for."""

from __future__ import annotations

import importlib
import sys

from trainmark.errors import UserError

COMMANDS = {
    "environment": ("trainmark.environment", "build a training environment from its lock"),
    "container": ("trainmark.container", "build or inspect the CUDA 10.2 image"),
    "preflight": ("trainmark.preflight", "check that this machine is what the profile declares"),
    "data": ("trainmark.data", "prepare tokenised data for a workload"),
    "measure": ("trainmark.launch", "run what is missing of one row"),
    "tables": ("trainmark.tables", "aggregate records into tables"),
    "page": ("trainmark.page", "render the reference page in every language"),
    "verdict": ("trainmark.verdict", "fail when a row failed or trains another model"),
    "check": ("trainmark.check", "the strict check for releases"),
    "status": ("trainmark.status", "show every row: measured, stale, missing or failed"),
    "archive": ("trainmark.archive", "keep the records as a record set"),
    "clean": ("trainmark.clean", "list, then remove, records that no row asks for"),
    "catalogues": ("trainmark.catalogues", "check or update the translations"),
    "schemas": ("trainmark.schemas", "write the JSON schemas of configuration and records"),
}


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(["usage: python -m trainmark COMMAND [--help]", "", "commands:", *lines, ""])


def main(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(usage(), end="")
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        print(f"trainmark: there is no command {name!r}\n\n{usage()}", end="", file=sys.stderr)
        return 2
    module = importlib.import_module(COMMANDS[name][0])
    sys.argv[0] = f"trainmark {name}"  # what argparse shows as the program's name
    try:
        return int(module.main(rest))
    except UserError as error:
        print(f"trainmark {name}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 141
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        what = error.strerror or f"{error} (is the disk full?)"  # numpy's short writes say no more
        print(f"trainmark {name}: {where}{what}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
