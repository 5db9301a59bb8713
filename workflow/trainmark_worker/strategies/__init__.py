"""Training strategies: one file each, named as in the configuration.

A file defines `class Strategy(base.Strategy)`. Files that begin with an underscore, and base.py,
are helpers. A name with a dot is a module of your own on PYTHONPATH.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import List


def names() -> List[str]:
    """Every strategy, read from the folder: needs no torch."""
    files = Path(__file__).parent.glob("[!_]*.py")
    return sorted(file.stem for file in files if file.stem != "base")


def load(name: str):
    """The strategy's class."""
    module = name if "." in name else f"{__name__}.{name}"
    return importlib.import_module(module).Strategy
