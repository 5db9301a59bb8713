"""python -m trainmark_worker --todo TODO.json --out DIRECTORY"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from . import startup


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m trainmark_worker", description=__doc__)
    parser.add_argument("--todo", type=Path, required=True, help="the runs, as JSON")
    parser.add_argument("--out", type=Path, required=True, help="where records are written")
    arguments = parser.parse_args()
    todo = json.loads(arguments.todo.read_text())
    if not todo["runs"]:
        return 0
    startup.ensure(todo["runs"])

    from .zygote import Zygote, own_stdout

    return Zygote(todo, arguments.out, own_stdout()).work()


if __name__ == "__main__":
    sys.exit(main())
