"""What trainmark itself costs: `make bench`, or one part: python benchmarks/run.py peer --pairs 10.

peer    throughput that trainmark records against a bare torchrun script, interleaved pairs in one
        run; the ratio and its 95 % interval (Student t on the logarithms of the paired ratios)
phases  where a report's wall time went, from the records of the last one: the share that is not
        training steps, per phase
noop    a second report against an empty Snakefile, interleaved
Results are written to build/benchmarks/<part>.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "workflow"))

from trainmark import records, worker  # noqa: E402
from trainmark import statistics as intervals
from trainmark.canonical import digest, write_json  # noqa: E402


def environment_python() -> str:
    stamps = sorted(ROOT.glob("build/envs/modern-*/environment.json"), key=os.path.getmtime)
    if not stamps:
        sys.exit("the training environment is not built; run `make report` first")
    return str(json.loads(stamps[-1].read_text())["python"])


def plan_run(table: str, row: str) -> tuple[dict[str, Any], dict[str, Any]]:
    path = ROOT / "build/plans/cpu" / table / f"{row}.json"
    if not path.is_file():
        sys.exit("there are no plans; run `snakemake -n report` first")
    plan = json.loads(path.read_text())
    run = next(r for r in plan["runs"] if (r["purpose"], r["repeat"]) == ("throughput", 1))
    return plan, {**run, "data": str(ROOT / run["data"])}


def trainmark_throughput(python: str, plan: dict[str, Any], run: dict[str, Any]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        todo = {
            **{key: plan[key] for key in ("table", "row", "hardware", "environment", "launcher")},
            "schema_version": 1,
            "time_limit_seconds": 600,
            "runs": [run],
        }
        write_json(Path(folder) / "todo.json", todo)
        arguments = ["--todo", f"{folder}/todo.json", "--out", f"{folder}/out"]
        command = worker.venv_command(python, ROOT / "workflow", arguments, 1)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wanted = records.Run(run["purpose"], run["repeat"], run["key"])
        record = records.load(wanted.path(Path(folder) / "out"))
    return float(record["metrics"]["samples_per_second"])


def bare_throughput(python: str, run: dict[str, Any]) -> float:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(run["spec"], file)
        file.flush()
        command = [
            python, "-m", "torch.distributed.run", "--standalone",
            "--nproc_per_node", str(run["spec"]["ranks"]),
            str(ROOT / "benchmarks/bare_torchrun.py"), file.name, run["data"],
        ]  # fmt: skip
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def paired_interval(ratios: list[float]) -> tuple[float, float, float]:
    """Geometric mean of paired ratios with its 95 % interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean, half = statistics.fmean(logs), 0.0
    if len(logs) > 1:
        quantile = intervals.t_quantile(0.975, len(logs) - 1)
        half = quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def peer(pairs: int, steps: int) -> dict[str, Any]:
    python = environment_python()
    plan, run = plan_run("mixed_precision", "fp32")
    run["spec"]["timed_steps"] = steps
    run["key_parts"]["spec"] = digest(run["spec"])
    run["key"] = records.key_of(run["key_parts"])
    found = []
    for number in range(pairs):
        first_ours = number % 2 == 0  # neither side always comes first
        if first_ours:
            ours, bare = trainmark_throughput(python, plan, run), bare_throughput(python, run)
        else:
            bare, ours = bare_throughput(python, run), trainmark_throughput(python, plan, run)
        found.append({"trainmark": ours, "bare": bare, "ratio": ours / bare})
        print(f"pair {number + 1}/{pairs}: {ours:.2f} / {bare:.2f} = {ours / bare:.3f}", flush=True)
    mean, low, high = paired_interval([pair["ratio"] for pair in found])
    print(f"trainmark / bare torchrun: {mean:.3f}, 95 % interval {low:.3f} to {high:.3f}")
    return {"pairs": found, "ratio": mean, "low": low, "high": high}


def phases() -> dict[str, Any]:
    plans = [json.loads(path.read_text()) for path in ROOT.glob("build/plans/cpu/*/*.json")]
    folders = [
        (plan, ROOT / f"results/cpu/records/{plan['table']}/{plan['row']}") for plan in plans
    ]
    wanted = {
        run.path(folder) for plan, folder in folders for run in records.wanted_runs(plan, folder)
    }
    kept = [json.loads(path.read_text()) for path in wanted if path.exists()]
    if not kept:
        sys.exit("there are no records; run `make report` first")
    starts = [datetime.fromisoformat(record["started"]) for record in kept]
    ends = [datetime.fromisoformat(record["finished"]) for record in kept]
    wall = (max(ends) - min(starts)).total_seconds()
    total: dict[str, float] = {}
    for record in kept:
        steps = sum((record.get("metrics") or {}).get("step_seconds") or [])
        name = record["purpose"]
        total[f"{name}: timed steps"] = total.get(f"{name}: timed steps", 0) + steps
        rest = record["duration_seconds"] - steps
        total[f"{name}: start, warm-up, end"] = total.get(f"{name}: start, warm-up, end", 0) + rest
    total["between runs: imports, launches, waiting"] = wall - sum(total.values())
    for name, seconds in total.items():
        print(f"{name:45s} {seconds:8.1f} s {100 * seconds / wall:5.1f} %")
    print(f"{'first start to last end':45s} {wall:8.1f} s")
    return {"wall_seconds": wall, "phases": total}


def noop(pairs: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "snakemake", "--cores", "4"]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Snakefile").write_text("rule all:\n    input: []\n")
        for number in range(pairs + 1):
            ours, empty = _seconds([*command, "report"], ROOT), _seconds(command, Path(folder))
            if number:  # the first pair warms caches
                found.append({"report": ours, "empty": empty, "difference": ours - empty})
                print(f"pair {number}/{pairs}: {ours:.2f} s, empty {empty:.2f} s", flush=True)
    median = statistics.median(pair["difference"] for pair in found)
    print(f"a second report costs {median:.2f} s more than an empty Snakefile (median)")
    return {"pairs": found, "median_difference": median}


def _seconds(command: list[str], folder: Path) -> float:
    started = time.monotonic()
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=["phases", "noop", "peer"])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=40, help="timed steps of a peer run")
    arguments = parser.parse_args()
    known = {
        "peer": lambda: peer(arguments.pairs, arguments.steps),
        "phases": phases,
        "noop": lambda: noop(5),
    }
    for name in arguments.parts:
        if name not in known:
            parser.error(f"there is no part {name!r}; parts are {', '.join(known)}")
        print(f"== {name}")
        write_json(ROOT / f"build/benchmarks/{name}.json", known[name]())


if __name__ == "__main__":
    main()
