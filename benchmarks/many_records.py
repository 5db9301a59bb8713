"""Status, tables and page of 10,000 synthetic records: wall time, CPU time and memory of each.

    python benchmarks/many_records.py [--records 10000] [--out build/benchmarks/many_records.json]

The aim is under 5 s and 500 MB each on a quiet 2-core machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from records_factory import NUMBERS, Results, make_cause  # noqa: E402


def make(folder: Path, count: int) -> tuple[Results, int]:
    """Declare every row with as many repeats as make about `count` records, and write them."""
    results = Results(folder, repeats=max(1, count // (len(NUMBERS) + 1) - 3))
    results.declare_all()
    results.measure_all()
    results.measure("sharding", "baseline", outcome="oom", cause=make_cause())
    return results, sum(1 for _ in results.records.rglob("*.json"))


def run(*command: str) -> dict[str, float]:
    """One command in a process of its own; its peak memory needs no other child before it."""
    code = (
        "import resource, subprocess, sys, json; "
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); "
        "used = resource.getrusage(resource.RUSAGE_CHILDREN); "
        "print(json.dumps([done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))"
    )
    begin = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    words = [sys.executable, "-m", "trainmark", *command]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, stdout=subprocess.PIPE, check=True
    )
    wall = time.perf_counter() - begin
    status, cpu, megabytes = json.loads(done.stdout)
    if status:
        sys.exit(f"{command[0]} failed with status {status}")
    return {"wall_seconds": wall, "cpu_seconds": cpu, "peak_mb": megabytes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=ROOT / "build/benchmarks/many_records.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        results, count = make(Path(name), options.records)
        places = ["--plans", str(results.plans), "--records", str(results.records)]
        tables = ["--tables", str(results.tables)]
        more = ["--published", str(ROOT / "config/published/alibaba-pai.yaml")]
        report = ["--report", str(ROOT / "report"), "--out", str(results.page)]
        found = {
            "status": run("status", *places),
            "tables": run("tables", *places, "--out", str(results.tables)),
            "page": run("page", *tables, *places, *more, *report),
        }
    print(f"{count} records; load {os.getloadavg()[0]:.1f}")
    for command, used in found.items():
        numbers = "  ".join(f"{name} {value:7.2f}" for name, value in used.items())
        print(f"{command:7} {numbers}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"records": count, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
