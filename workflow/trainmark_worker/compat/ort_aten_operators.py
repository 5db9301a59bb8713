"""ORTModule 1.19 calls torch for operators that it exports as ATen (BERT: embedding, its gradient).

Its wheel has the C++ for these two functions as source only, to be compiled once per environment
(g++, Python's headers, 1.5 CPU minutes). Here they are in Python, called a few times per step.
Without them: "ORTModule's extensions were not detected", and no graph with an embedding.
Tensors travel as DLPack's DLManagedTensor: https://dmlc.github.io/dlpack/latest/
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import traceback
import types

import torch
from torch.utils.dlpack import from_dlpack, to_dlpack

EXTENSION = "onnxruntime.training.ortmodule.torch_cpp_extensions.aten_op_executor"
_FRESH, _TAKEN = b"dltensor", b"used_dltensor"  # names of a capsule before and after its use
_Tensors = ctypes.POINTER(ctypes.c_void_p)
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes = [ctypes.py_object, ctypes.c_char_p]


def install() -> None:
    """Before ORTModule is imported."""
    module = types.ModuleType(EXTENSION)
    module.is_tensor_argument_address = lambda: _address(_is_tensor_argument)
    module.execute_aten_operator_address = lambda: _address(_execute)
    sys.modules[EXTENSION] = module


def accept() -> None:
    """After its import: it looks for compiled files and would refuse to work without any."""
    from onnxruntime.training import ortmodule

    ortmodule._FALLBACK_INIT_EXCEPTION = None


class _ManagedTensor(ctypes.Structure):
    """dlpack.h: DLTensor, then what its owner needs."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("type_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", _DELETER),
    ]


#: Numbers by DLPack's type code and bits; others go through torch.
_NUMBERS = {(0, 64): ctypes.c_int64, (1, 8): ctypes.c_bool, (6, 8): ctypes.c_bool}


def _address(function) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value


@functools.lru_cache(maxsize=None)
def _operator(name: bytes, overload: bytes):
    """The callable, and whether each argument and each result is a tensor."""
    short = name.decode().split("::")[-1]
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{short}")
    schema = next(s for s in schemas if s.overload_name == overload.decode())
    call = getattr(getattr(torch.ops.aten, short), overload.decode() or "default")
    tensors = [[_is_tensor(a.type) for a in part] for part in (schema.arguments, schema.returns)]
    return call, schema.arguments, tensors


def _is_tensor(kind) -> bool:
    return (kind.getElementType() if kind.kind() == "OptionalType" else kind).kind() == "TensorType"


@ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_bool)
def _is_tensor_argument(name, overload, index, is_input):
    arguments, results = _operator(name, overload)[2]
    return (arguments if is_input else results)[index]


@ctypes.CFUNCTYPE(
    None,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_size_t,
    _Tensors,
    ctypes.c_size_t,
    _Tensors,
)
def _execute(name, overload, input_count, inputs, output_count, outputs):
    try:
        call, arguments, (is_tensor, _) = _operator(name, overload)
        values = [_value(inputs[i], arguments[i], is_tensor[i]) for i in range(input_count)]
        results = call(*values)
        results = results if isinstance(results, (tuple, list)) else (results,)
        for index, result in zip(range(output_count), results):
            outputs[index] = _given_away(torch.as_tensor(result).contiguous())
    except BaseException:  # no exception can pass through ORT's C++
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _value(pointer, argument, is_tensor: bool):
    """An argument from ORT's tensor: null stands for the default; numbers come as tensors."""
    if not pointer:
        return argument.default_value if argument.has_default_value() else None
    if not is_tensor:
        number = _number(pointer)
        if number is not None:
            return number
    tensor = from_dlpack(_new_capsule(pointer, _FRESH, None))
    if is_tensor:
        return tensor
    return tensor.tolist() if "List" in str(argument.type.kind()) else tensor.item()


def _number(pointer):
    """The value of a scalar on the CPU, or None: a torch tensor for each would take its time."""
    managed = _ManagedTensor.from_address(pointer)
    kind = _NUMBERS.get((managed.type_code, managed.type_bits))
    if managed.dimensions or managed.device_type != 1 or kind is None:
        return None
    number = kind.from_address(managed.data + managed.byte_offset).value
    managed.deleter(pointer)
    return number


def _given_away(tensor: torch.Tensor) -> int:
    """A DLManagedTensor that ORT owns from now on."""
    capsule = to_dlpack(tensor)
    pointer = _pointer_of(capsule, _FRESH)
    _rename(capsule, _TAKEN)
    return pointer
