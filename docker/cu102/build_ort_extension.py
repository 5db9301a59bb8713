"""Build ONNX Runtime's torch extensions: all of them where nvcc is, else the CPU ones only.

Without nvcc, ONNX Runtime's own installer sees the wheel's CUDA version and fails on the GPU
extensions; hiding that version makes it build the rest. A GPU then cannot use ORTModule.
"""

import shutil

from onnxruntime.training import ortmodule

if shutil.which("nvcc") is None:
    ortmodule.ONNXRUNTIME_CUDA_VERSION = None

from onnxruntime.training.ortmodule.torch_cpp_extensions.install import (  # noqa: E402
    build_torch_cpp_extensions,
)

build_torch_cpp_extensions()
