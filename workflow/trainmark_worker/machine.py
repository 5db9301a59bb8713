"""Facts about the machine and the environment that a record keeps."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import subprocess
import time
from typing import Any, Dict, List, Optional

from .calibration import calibrate

PACKAGES = (
    "torch",
    "numpy",
    "transformers",
    "fairscale",
    "deepspeed",
    "megatron-core",
    "torch-ort",
    "onnxruntime-training",
    "onnxruntime-training-cpu",
    "onnx",
)


def environment(declared: Dict[str, Any]) -> Dict[str, Any]:
    """The declared environment, with the versions that are really here."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return {
        "name": declared.get("name"),
        "hash": declared.get("hash"),
        "image_digest": declared.get("image_digest"),
        "python": platform.python_version(),
        "packages": versions,
    }


def machine(device: str) -> Dict[str, Any]:
    facts = {
        "cpu_model": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "devices": [],
        "driver": None,
        "cuda": None,
        "nccl": None,
        "nvidia_smi": None,
        "topology": None,
        "clocks": None,
    }
    if device == "cuda":
        facts.update(_gpus())
    return facts


def _cpu_model() -> Optional[str]:
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or None


def _gpus() -> Dict[str, Any]:
    import torch

    names = _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    driver = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return {
        "devices": names.splitlines() if names else [],
        "driver": driver.splitlines()[0] if driver else None,
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if torch.version.cuda else None,
        "nvidia_smi": _output("nvidia-smi"),
        "topology": _output("nvidia-smi", "topo", "-m"),
        "clocks": _output("nvidia-smi", "--query-gpu=clocks.sm,clocks.mem", "--format=csv"),
    }


def _output(*command: str) -> Optional[str]:
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30, text=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


class Load:
    """Load averages around a run, and how busy other processes kept the machine meanwhile.

    Made before the ranks start and stopped when they have ended: what GPUs then hold is others'.
    """

    def __init__(self, device: str, timed: bool):
        """`timed`: how fast the CPU is matters, because ranks on it are timed."""
        self.calibrations = [calibrate()] if timed and device == "cpu" else []
        self.gpus_before = _gpu_memory_used(device)
        self.device = device
        self.before = list(os.getloadavg())
        self.begin = (time.monotonic(), _busy_seconds(), _own_seconds())

    def stop(self) -> Dict[str, Any]:
        elapsed = time.monotonic() - self.begin[0]
        foreign = (_busy_seconds() - self.begin[1]) - (_own_seconds() - self.begin[2])
        capacity = max(elapsed, 1e-9) * (os.cpu_count() or 1)
        gpus = [*self.gpus_before, *_gpu_memory_used(self.device)]
        if self.calibrations:
            self.calibrations.append(calibrate())
        return {
            "foreign_gpu_memory_mib": max(gpus) if gpus else None,
            "calibration_seconds": [round(seconds, 5) for seconds in self.calibrations] or None,
            "before": self.before,
            "after": list(os.getloadavg()),
            "foreign_cpu_percent": round(100 * max(0.0, foreign) / capacity, 1),
        }


def _gpu_memory_used(device: str) -> List[int]:
    """MiB in use on each GPU."""
    if device != "cuda":
        return []
    text = _output("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
    return [int(line) for line in (text or "").splitlines() if line.strip().isdigit()]


def _busy_seconds() -> float:
    """CPU seconds of the whole machine since it started: user, nice, system, irq, softirq."""
    with open("/proc/stat") as lines:
        fields: List[int] = [int(field) for field in lines.readline().split()[1:]]
    busy = sum(fields[:3]) + sum(fields[5:7])
    return busy / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """CPU seconds of this process and of its ended children."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
