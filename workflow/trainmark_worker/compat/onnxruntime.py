"""ORTModule of onnxruntime-training 1.19 (and 1.12) on a CPU, and on a newer torch than it knows.

Without this: its import fails on torch >= 2.9 (private modules of the exporter have moved), exports
go through dynamo and fail, NVTX calls raise in a CPU build of torch, the extension for custom
autograd functions is missing, and its threads spin on the cores of the other ranks.
"""

from __future__ import annotations

import importlib
import os
import sys
import types

import torch

MOVED = ("jit_utils", "_globals", "_type_utils")
NEW_HOME = "torch.onnx._internal.torchscript_exporter"
INTEROP = "onnxruntime.training.ortmodule.torch_cpp_extensions.torch_interop_utils"


def install(threads: int) -> None:
    """Call before ORTModule is imported. `threads`: of a session, as torch has per rank."""
    # Fall back to nothing: a row that says ORT must run in ORT.
    os.environ["ORTMODULE_FALLBACK_POLICY"] = "FALLBACK_DISABLE"
    os.environ["ORTMODULE_ENABLE_CUSTOM_AUTOGRAD"] = "0"
    if torch.__version__ >= "2":
        find_moved_modules()
        export_with_torchscript()
    if torch.version.cuda is None:
        torch.cuda.nvtx.range_push = lambda message: 0
        torch.cuda.nvtx.range_pop = lambda: 0
    without_interop_extension()
    fair_session(threads)


def find_moved_modules() -> None:
    """Old names of the exporter's private modules (moved in torch 2.9)."""

    for name in MOVED:
        old = f"torch.onnx._internal.{name}" if name == "jit_utils" else f"torch.onnx.{name}"
        try:
            importlib.import_module(old)
        except ImportError:
            module = importlib.import_module(f"{NEW_HOME}.{name}")
            sys.modules[old] = module
            parent, _, leaf = old.rpartition(".")
            setattr(importlib.import_module(parent), leaf, module)


def export_with_torchscript() -> None:
    import torch.onnx

    original = torch.onnx.export
    if getattr(original, "with_torchscript", False):
        return

    def export(*arguments, **options):
        options.setdefault("dynamo", False)
        return original(*arguments, **options)

    export.with_torchscript = True
    torch.onnx.export = export


def without_interop_extension() -> None:
    """Imported always, used only for custom autograd functions, which are switched off."""
    from .build_ort_extension import extensions_folder

    if not list(extensions_folder().glob("torch_interop_utils*.so")):
        sys.modules.setdefault(INTEROP, types.ModuleType(INTEROP))


_arena = True


def without_arena() -> None:
    """In a memory run: each tensor is allocated and released, instead of kept for the next step."""
    global _arena
    _arena = False


def fair_session(threads: int) -> None:
    """As many threads as torch has, and none that spins while other ranks need the core."""
    from onnxruntime.training.ortmodule._graph_execution_manager import GraphExecutionManager

    original = GraphExecutionManager._get_session_config
    if getattr(original, "fair", False):
        return

    def session_config(self):
        options, providers, provider_options = original(self)
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.enable_cpu_mem_arena = _arena
        return options, providers, provider_options

    session_config.fair = True
    GraphExecutionManager._get_session_config = session_config
