"""Write the locked requirements beside the .in files: `make lock` (needs uv from PyPI).

The modern line is split: pip needs torch before it can build deepspeed and fairscale; torch comes as
a CPU build or as a CUDA build, and the CUDA libraries are only wanted beside the latter.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
# torch's CPU build is not on PyPI but on PyTorch's own index (or a mirror): {file tag: SHA-256}.
TORCH_CPU_HASHES = {
    "cp311-cp311-manylinux_2_28_x86_64": "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",
    "cp312-cp312-manylinux_2_28_x86_64": "4ca4a9394b0c771238a4f73590fdbbc4debad85ed0fa63d026ae1b085da7d6e2",
}
BUILD_NEEDS = {
    "numpy", "setuptools", "wheel", "ninja", "filelock", "sympy", "networkx", "jinja2",
    "fsspec", "typing-extensions", "mpmath", "markupsafe",
}  # fmt: skip
CUDA_ONLY = re.compile(r"^(nvidia-|cuda-|triton)")


def compile_lock(name: str, *options: str) -> str:
    command = [
        sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--generate-hashes",
        "--no-emit-index-url", "--python-version", "3.11", *options, str(HERE / f"{name}.in"),
    ]  # fmt: skip
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=HERE).stdout


def entries(lock: str) -> dict[str, str]:
    """{package: its whole entry} of a lock, comments dropped."""
    lines = [line for line in lock.splitlines() if not line.lstrip().startswith("#")]
    found = re.split(r"\n(?=[a-z])", "\n".join(lines).strip())
    return {re.split(r"[=\s;]", entry, maxsplit=1)[0]: entry for entry in found}


def write(name: str, packages: list[str]) -> None:
    (HERE / name).write_text("\n".join(packages) + "\n", encoding="utf-8")


def main() -> None:
    for name in ("pipeline", "test"):
        write(f"{name}.txt", list(entries(compile_lock(name, "--universal")).values()))
    modern = entries(compile_lock("modern", "--python-platform", "x86_64-unknown-linux-gnu"))
    version = re.match(r"torch==([^ ]+)", modern["torch"])
    assert version
    cpu = "".join(f" \\\n    --hash=sha256:{value}" for value in TORCH_CPU_HASHES.values())
    write("modern-torch-cpu.txt", [f"torch=={version[1]}+cpu{cpu}"])
    write("modern-torch-cuda.txt", [modern.pop("torch")])
    write("modern-build.txt", [text for name, text in modern.items() if name in BUILD_NEEDS])
    write("modern-cuda.txt", [text for name, text in modern.items() if CUDA_ONLY.match(name)])
    rest = [n for n in modern if n not in BUILD_NEEDS and not CUDA_ONLY.match(n)]
    write("modern.txt", [modern[name] for name in rest])


if __name__ == "__main__":
    main()
