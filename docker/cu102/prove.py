"""What the image promises, checked while it is built: prints the versions as JSON, or fails."""

import ctypes
import importlib
import json
import platform
import shutil
from importlib.metadata import version

CUDA = "10.2"
ARCHITECTURE = "sm_70"  # Tesla V100
PACKAGES = [
    "torch",
    "numpy",
    "transformers",
    "deepspeed",
    "fairscale",
    "megatron-core",
    "onnxruntime-training",
    "torch-ort",
    "onnx",
    "protobuf",
    "pandas",
    "jinja2",
]
MODULES = [
    "numpy",
    "transformers",
    "pandas",
    "jinja2",
    "fairscale.optim",
    "fairscale.nn.data_parallel",
    "deepspeed",
    "megatron.core.tensor_parallel",
    "megatron.core.pipeline_parallel.schedules",
    "onnxruntime",
    "torch_ort",
]
# What ONNX Runtime loads before it offers its CUDA provider; only a base image can bring them
# (torch carries copies of some, but under other names or not yet loaded by then).
CUDA_LIBRARIES = (
    "libcublas.so.10",
    "libcudnn.so.7",
    "libcurand.so.10",
    "libcufft.so.10",
    "libcudart.so.10.2",
)


def loads(library):
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def prove():
    cuda_libraries = {name: loads(name) for name in CUDA_LIBRARIES}  # before torch brings its own
    import torch

    assert torch.version.cuda == CUDA, torch.version.cuda
    # Asked of the build, not of a device: torch.cuda.get_arch_list() is empty without a GPU.
    architectures = torch._C._cuda_getArchFlags().split()
    assert ARCHITECTURE in architectures, architectures
    for module in MODULES:
        importlib.import_module(module)
    return {
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "architectures": architectures,
        "packages": {name: version(name) for name in PACKAGES},
        "cuda_libraries": cuda_libraries,
        "nvcc": shutil.which("nvcc"),
    }


if __name__ == "__main__":
    print(json.dumps(prove(), indent=1, sort_keys=True))
