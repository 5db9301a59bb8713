"""What `nvidia-smi` says of a machine, and how that differs from what a profile declares.

Pure functions over captured text, so that machines other than this one are tested too. The XML of
`nvidia-smi -q -x` is read; the table of plain `nvidia-smi` is kept for readers. Sources: the XML's
own DTD (nvsmi_device_v10 to v12; names changed between them, both are read).
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainmark.config import Requirements

IDLE_MEMORY_MIB = 16  # what a driver may keep for itself on an idle GPU
MEMORY_TOLERANCE = 0.02  # the same card has 32,510 MiB under driver 440 and 32,768 under newer ones
SLOWDOWNS = {
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "hardware thermal slowdown",
    "hw_power_brake_slowdown": "hardware power brake",
    "sw_thermal_slowdown": "software thermal slowdown",
}
POWER_CAP = "sw_power_cap"


@dataclass(frozen=True)
class Gpu:
    index: int
    name: str
    memory_mib: int | None
    used_mib: int | None
    utilisation_percent: int | None
    processes: tuple[str, ...]  # "pid name"
    mig: bool
    compute_mode: str
    slowdowns: tuple[str, ...]
    power_capped: bool
    clocks: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Gpus:
    driver: str
    cuda: str
    devices: tuple[Gpu, ...]


@dataclass(frozen=True)
class Mismatch:
    """One difference that makes numbers incomparable."""

    check: str
    found: str
    expected: str
    advice: str = ""

    def __str__(self) -> str:
        advice = f" ({self.advice})" if self.advice else ""
        return f"{self.check}: found {self.found}, expected {self.expected}{advice}"


class Unreadable(Exception):
    """nvidia-smi gave no answer that can be used; the message says what it said."""


def parse(xml: str) -> Gpus:
    """Read `nvidia-smi -q -x`. Raises Unreadable with nvidia-smi's own words."""
    start = xml.find("<?xml")
    try:
        root = ElementTree.fromstring(_without_doctype(xml[max(start, 0) :]))
    except ElementTree.ParseError:
        raise Unreadable(" ".join(xml.split())[:300] or "nothing") from None
    devices = tuple(_gpu(index, gpu) for index, gpu in enumerate(root.findall("gpu")))
    return Gpus(_text(root, "driver_version"), _text(root, "cuda_version"), devices)


def _without_doctype(xml: str) -> str:
    return re.sub(r"<!DOCTYPE[^>]*>", "", xml)


def _text(node: ElementTree.Element, path: str) -> str:
    return (node.findtext(path) or "").strip()


def _number(text: str) -> int | None:
    """'32510 MiB', '0 %' → the number; 'N/A' → None."""
    match = re.match(r"\d+", text)
    return int(match.group()) if match else None


def _gpu(index: int, node: ElementTree.Element) -> Gpu:
    reasons = node.find("clocks_event_reasons")
    if reasons is None:
        reasons = node.find("clocks_throttle_reasons")
    active = {
        re.sub(r"clocks_(throttle|event)_reason_", "", reason.tag)
        for reason in (reasons if reasons is not None else ())
        if (reason.text or "").strip() == "Active"
    }
    clocks = {
        f"{group.removesuffix('s')}_{name}": _text(node, f"{group}/{name}")
        for group in ("clocks", "applications_clocks", "max_clocks")
        for name in ("sm_clock", "graphics_clock", "mem_clock")
        if _text(node, f"{group}/{name}")
    }
    return Gpu(
        index=index,
        name=_text(node, "product_name"),
        memory_mib=_number(_text(node, "fb_memory_usage/total")),
        used_mib=_number(_text(node, "fb_memory_usage/used")),
        utilisation_percent=_number(_text(node, "utilization/gpu_util")),
        processes=tuple(_process(p) for p in node.iterfind("processes/process_info")),
        mig=_text(node, "mig_mode/current_mig") == "Enabled",
        compute_mode=_text(node, "compute_mode"),
        slowdowns=tuple(text for key, text in SLOWDOWNS.items() if key in active),
        power_capped=POWER_CAP in active,
        clocks=clocks,
    )


def _process(node: ElementTree.Element) -> str:
    return f"{_text(node, 'pid')} {_text(node, 'process_name')}".strip()


# --- comparing ------------------------------------------------------------------------------------


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def compare(found: Gpus, expected: Requirements) -> tuple[list[Mismatch], list[str]]:
    """All mismatches together, and notes on what differs without spoiling the comparison."""
    mismatches = _software(found, expected)
    if len(found.devices) != expected.gpus:
        mismatches.append(Mismatch("GPU count", str(len(found.devices)), str(expected.gpus)))
    for gpu in found.devices:
        mismatches += [*_identity(gpu, expected), *_busy(gpu), *_health(gpu)]
    return mismatches, _notes(found, expected)


def _software(found: Gpus, expected: Requirements) -> list[Mismatch]:
    faults = []
    minimum = expected.minimum_driver
    if minimum and version(found.driver) < version(minimum):
        faults.append(Mismatch("driver", found.driver or "unknown", f"{minimum} or newer"))
    if expected.cuda and found.cuda and version(found.cuda) < version(expected.cuda):
        advice = "the CUDA version that the driver supports; a newer driver brings it"
        faults.append(Mismatch("CUDA", found.cuda, f"{expected.cuda} or newer", advice))
    return faults


def _identity(gpu: Gpu, expected: Requirements) -> list[Mismatch]:
    faults = []
    name = gpu.name.removeprefix("NVIDIA ")
    if expected.gpu_name and name.lower() != expected.gpu_name.removeprefix("NVIDIA ").lower():
        faults.append(Mismatch(f"GPU {gpu.index} name", gpu.name, expected.gpu_name))
    wanted = expected.gpu_memory_mib
    if wanted and abs((gpu.memory_mib or 0) - wanted) > MEMORY_TOLERANCE * wanted:
        memory = f"{gpu.memory_mib:,} MiB" if gpu.memory_mib else "unknown"
        faults.append(Mismatch(f"GPU {gpu.index} memory", memory, f"{wanted:,} MiB"))
    if gpu.mig:
        advice = f"nvidia-smi -i {gpu.index} -mig 0"
        faults.append(Mismatch(f"GPU {gpu.index} MIG", "enabled", "disabled", advice))
    return faults


def _busy(gpu: Gpu) -> list[Mismatch]:
    faults = []
    if gpu.processes:
        running = ", ".join(f"process {process}" for process in gpu.processes)
        faults.append(Mismatch(f"GPU {gpu.index} processes", running, "none"))
    if (gpu.used_mib or 0) > IDLE_MEMORY_MIB:
        hidden = (
            ""
            if gpu.processes
            else "no process is shown for it: look in other containers and for other users"
        )
        found = f"{gpu.used_mib:,} MiB in use"
        faults.append(Mismatch(f"GPU {gpu.index} memory in use", found, "none", hidden))
    if gpu.utilisation_percent:
        found = f"{gpu.utilisation_percent} %"
        faults.append(Mismatch(f"GPU {gpu.index} utilisation", found, "0 %"))
    return faults


def _health(gpu: Gpu) -> list[Mismatch]:
    faults = []
    if gpu.compute_mode == "Prohibited":
        advice = f"nvidia-smi -i {gpu.index} -c DEFAULT"
        faults.append(Mismatch(f"GPU {gpu.index} compute mode", "Prohibited", "Default", advice))
    if gpu.slowdowns:
        found = ", ".join(gpu.slowdowns)
        faults.append(
            Mismatch(f"GPU {gpu.index} throttling", found, "none", "check cooling and power")
        )
    return faults


def _notes(found: Gpus, expected: Requirements) -> list[str]:
    notes = []
    published = expected.published_driver
    if published and found.driver != published:
        notes.append(f"driver {found.driver}; the published figures were measured with {published}")
    if expected.cuda and found.cuda and version(found.cuda) > version(expected.cuda):
        notes.append(f"the driver supports CUDA {found.cuda}; the image uses {expected.cuda}")
    for gpu in found.devices:
        wanted = expected.gpu_memory_mib
        if wanted and gpu.memory_mib and gpu.memory_mib != wanted:
            notes.append(f"GPU {gpu.index}: the driver reports {gpu.memory_mib:,} MiB")
        if gpu.power_capped:
            notes.append(f"GPU {gpu.index}: its power limit holds the clocks down")
        now, most = (
            gpu.clocks.get("applications_clock_graphics_clock"),
            gpu.clocks.get("max_clock_graphics_clock"),
        )
        if now and most and (_number(now) or 0) < (_number(most) or 0):
            notes.append(f"GPU {gpu.index}: application clock {now} of {most}")
    return notes


def only_utilisation(mismatches: Sequence[Mismatch]) -> bool:
    """Waking a GPU up to ask it can itself show as utilisation: worth asking again."""
    return bool(mismatches) and all(m.check.endswith("utilisation") for m in mismatches)


def facts(found: Gpus) -> dict[str, Any]:
    """What goes into the records and onto the page."""
    return {
        "driver": found.driver,
        "cuda": found.cuda,
        "devices": [gpu.name for gpu in found.devices],
        "memory_mib": [gpu.memory_mib for gpu in found.devices],
        "clocks": [gpu.clocks for gpu in found.devices],
    }


def explain(text: str) -> Mismatch:
    """nvidia-smi's own failures, in words that say what to do."""
    known = {
        "Driver/library version mismatch": (
            "the driver in the kernel and its library have different versions",
            "reboot, or reload the nvidia kernel modules",
        ),
        "couldn't communicate with the NVIDIA driver": (
            "nvidia-smi, but no running driver",
            "load the driver (modprobe nvidia) or reinstall it for this kernel",
        ),
        "No devices were found": ("a driver without a GPU", "check the cards with lspci"),
        "Insufficient Permissions": ("no permission to ask the driver", "run as a permitted user"),
    }
    for words, (found, advice) in known.items():
        if words in text:
            return Mismatch("GPUs", found, "a working NVIDIA driver", advice)
    said = " ".join(text.split())[:200]
    return Mismatch("GPUs", f"an answer of nvidia-smi that cannot be read: {said}", "its XML")
