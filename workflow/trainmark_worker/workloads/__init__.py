"""Workloads: model, task and the arrays that it is trained on; one file each.

A file defines, as functions of the module:
    ARRAYS                       names of the .npy files of the data folder
    prepare(spec)                imports, once, before the ranks are forked
    build(spec) -> Module        initial weights set; `forward(**batch)` returns the mean loss, fp32
    blocks(model) -> ModuleList  the repeated layers, for strategies that wrap them one by one
    collate(spec, arrays)        {name: rows} -> batch, a dictionary of CPU tensors
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import List


def names() -> List[str]:
    """Every workload, read from the folder: needs no torch."""
    return sorted(f.stem.replace("_", "-") for f in Path(__file__).parent.glob("[!_]*.py"))


def load(name: str):
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
