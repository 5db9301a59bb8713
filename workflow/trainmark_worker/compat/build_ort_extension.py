"""Build the one torch extension that ORTModule needs on a CPU (onnxruntime-training 1.19, torch 2).

    python -m trainmark_worker.compat.build_ort_extension

The wheel brings only sources. ORT's own installer would also build an extension for custom
autograd functions, which no row uses; its import is stubbed in compat/onnxruntime.py.
Takes about 1.5 CPU minutes, once per environment; does nothing when it is there already.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

EXTENSION = "aten_op_executor"


def extensions_folder() -> Path:
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        sys.exit("onnxruntime-training is not installed here")
    return Path(spec.origin).parent / "training" / "ortmodule" / "torch_cpp_extensions"


def lacking() -> str:
    """What the compilation needs and this machine has not; empty when all is there."""
    header = Path(sysconfig.get_path("include")) / "Python.h"
    found = {"g++": bool(shutil.which("g++")), "Python's header files": header.exists()}
    return " and ".join(name for name, there in found.items() if not there)


def main() -> int:
    folder = extensions_folder()
    if list(folder.glob(f"{EXTENSION}*.so")):
        return 0
    missing = lacking()
    if missing:
        sys.exit(
            f"ONNX Runtime's torch extension cannot be compiled without {missing} "
            "(Debian, Ubuntu: apt install g++ python3-dev)"
        )
    setup = folder / "cpu" / EXTENSION / "setup.py"
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, str(setup), "build", "--build-base", scratch]
        done = subprocess.run(
            command, cwd=scratch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        built = list(Path(scratch).rglob("*.so"))
        if done.returncode or not built:
            sys.exit("\n".join(done.stdout.splitlines()[-15:]) or "nothing was built")
        for library in built:
            shutil.copy(library, folder / library.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
