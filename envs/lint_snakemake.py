"""`snakemake --lint` with only the exceptions named here, each with its reason."""

from __future__ import annotations

import json
import subprocess
import sys

EXCEPTIONS = {
    "Mixed rules and functions in same snakefile.": "input functions stand beside their only rule",
    "Migrate long run directives into scripts or notebooks": "there are none",
    "Specify a conda environment or container for each rule.": "environments are nodes of the DAG; "
    "the launcher enters them (DESIGN: container: would silently run on the host)",
    "Absolute path": "paths come from configuration",
    "No log directive defined": "light local rules print their result",
}


def main() -> int:
    command = [sys.executable, "-m", "snakemake", "--lint", "json"]
    result = subprocess.run(command, capture_output=True, text=True)
    start = result.stdout.find("{")
    if start < 0:
        print(result.stderr[-2000:], file=sys.stderr)
        return 1 if result.returncode else 0
    report = json.loads(result.stdout[start:])
    found = [
        (place.get("rule") or place.get("snakefile") or "?", lint["title"], lint["body"])
        for group in ("rules", "snakefiles")
        for place in report.get(group, [])
        for lint in place["lints"]
    ]
    bad = [item for item in found if not any(item[1].startswith(name) for name in EXCEPTIONS)]
    for place, title, body in bad:
        print(f"{place}: {title}: {body}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
