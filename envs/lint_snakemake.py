"""`snakemake --lint` with only the exceptions named here, each with its reason."""

from __future__ import annotations

import re
import subprocess
import sys

EXCEPTIONS = {
    r"Mixed rules and functions in same snakefile": "an input function stands beside its only rule",
    r"Specify a conda environment or container for each rule": "environments are nodes of the DAG "
    "that the launcher enters; container: would silently run on the host without --sdm",
    r"No log directive defined": "targets and light local rules print their result",
    r"Shell command directly uses variable [A-Z_]+ from outside": "constants of rules/common.smk: "
    "folders and options; what decides a re-run is the hash in a path, not a parameter",
}
PLACE = re.compile(r"^Lints for (?:rule|snakefile) (.*?):?$")
FOUND = re.compile(r"^ +\* (.*?):?$")


def main() -> int:
    command = [sys.executable, "-m", "snakemake", "--lint"]
    result = subprocess.run(command, capture_output=True, text=True)
    place, checked, bad = "?", 0, []
    for line in (result.stdout + result.stderr).splitlines():
        if match := PLACE.match(line):
            place = match[1]
        elif match := FOUND.match(line):
            checked += 1
            if not any(re.match(pattern, match[1]) for pattern in EXCEPTIONS):
                bad.append(f"{place}: {match[1]}")
    if not checked:  # lint always finds the exceptions; finding nothing means that it did not run
        bad.append(f"snakemake --lint did not run:\n{result.stderr[-2000:]}")
    print("\n".join(bad), file=sys.stderr, end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
