"""One rank of one run: forked by the zygote, or `python -m trainmark_worker.rank` under torchrun.

A rank leaves in the run's folder: `events.jsonl` lines, `report.<rank>.json` at its end.
"""

from __future__ import annotations

import datetime
import faulthandler
import json
import os
import signal
import sys
import sysconfig
import time
import traceback
from pathlib import Path
from typing import Any, Dict

TRACEBACK_LINES = 60
LEAVE_SECONDS = 10.0
#: Never destroyed: gloo's threads and Python's lock can deadlock while a group is torn down
#: (seen once in 60 runs). A rank leaves by os._exit.
_alive: list = []


def prepare(runs) -> None:
    """Import everything that `runs` need, once. The first optimizer object imports dynamo."""
    import torch
    import torch.distributed  # noqa: F401

    from . import compat, strategies, train, workloads  # noqa: F401

    compat.prepare()
    if torch.__version__ >= "2":
        import torch._dynamo  # noqa: F401
    for run in runs:
        spec = run["spec"]
        strategies.load(spec["strategy"]).prepare(spec)
        workloads.load(spec["workload"]).prepare(spec)


def run_rank(run: Dict[str, Any], folder: Path) -> int:
    """Train; report success or failure. RANK, WORLD_SIZE, ... are set as torchrun does."""
    from . import limits
    from .train import Position

    faulthandler.register(signal.SIGUSR1, all_threads=True)  # the zygote asks before a timeout
    rank = int(os.environ["RANK"])
    say(folder, {"event": "rank_started", "rank": rank, "pid": os.getpid()})
    position = Position()
    try:
        report = _train(run, folder, position)
    except BaseException as error:
        limits.lift_memory_limit()
        report = failure(error, position, rank)
        traceback.print_exc()
    _write(folder / f"report.{rank}.json", report)
    if not report["ok"]:
        return 1
    _wait_for_all_reports(folder, run["spec"]["ranks"])
    return 0


def _wait_for_all_reports(folder: Path, ranks: int) -> None:
    """A rank that leaves early closes connections that slower ones still use in a barrier."""
    deadline = time.monotonic() + LEAVE_SECONDS
    wanted = [folder / f"report.{number}.json" for number in range(ranks)]
    while not all(path.exists() for path in wanted) and time.monotonic() < deadline:
        time.sleep(0.01)


def _train(run: Dict[str, Any], folder: Path, position) -> Dict[str, Any]:
    import torch
    import torch.distributed as dist

    from . import compat, strategies, workloads
    from .train import train

    spec = run["spec"]
    torch.set_num_threads(spec["threads_per_rank"])
    device = _device(spec)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        timeout=datetime.timedelta(seconds=max(60, 2 * run["time_limit_seconds"])),
    )
    compat.start(spec)
    strategy = strategies.load(spec["strategy"])(spec, device)
    strategy.check()
    strategy.start()
    say(folder, {"event": "rank_ready", "rank": strategy.rank})

    def on_step(step, steps, seconds, loss):
        # The last rank is on the last pipeline stage: it always knows a loss (of its own share).
        if strategy.rank == strategy.ranks - 1:
            rate = spec["global_batch"] / seconds
            event = {"event": "step", "step": step + 1, "steps": steps}
            say(folder, {**event, "samples_per_second": rate, "loss": float(loss)})

    measured = train(run, strategy, workloads.load(spec["workload"]), position, on_step)
    _alive.append(strategy)
    return {"ok": True, "rank": strategy.rank, "time": time.time(), **measured}


def _device(spec: Dict[str, Any]):
    import torch

    if spec["device"] == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def _without_places(text: str) -> str:
    """File names from the checkout's or the environment's root: no path of one machine."""
    checkout, library = str(Path(__file__).parents[2]), str(Path(os.__file__).parent)
    packages = sysconfig.get_paths()["purelib"]
    for place in (checkout, packages, library):
        text = text.replace(f'"{place}/', '"')
    return text


def failure(error: BaseException, position, rank: int) -> Dict[str, Any]:
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    text = _without_places("".join(lines)).splitlines()[-TRACEBACK_LINES:]
    return {
        "ok": False,
        "time": time.time(),
        "rank": rank,
        "type": type(error).__name__,
        "message": str(error),
        "traceback": "\n".join(text),
        "phase": position.phase,
        "step": position.step,
        "micro_batch_index": position.micro_batch_index,
    }


def say(folder: Path, event: Dict[str, Any]) -> None:
    """Append one line: short enough that lines of several ranks never mix."""
    with open(folder / "events.jsonl", "a") as events:
        events.write(json.dumps(event) + "\n")


def _write(path: Path, value: Dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value))
    part.replace(path)


def main() -> None:
    """Under torchrun: the only argument is the run's folder."""
    from . import limits

    limits.die_with_parent(parent=os.getppid())
    folder = Path(sys.argv[1])
    run = json.loads((folder / "run.json").read_text())
    prepare([run])
    code = run_rank(run, folder)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
