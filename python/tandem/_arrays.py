"""Arrays of other libraries: their types, their streams, and results in the caller's kind of array."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy

from . import _core

_NUMPY_NAMES = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "u8": "uint8",
    "u32": "uint32",
    "i8": "int8",
    "i32": "int32",
    "i64": "int64",
    "f64": "float64",
    "bool": "bool",
}
#: Names of the element types that there are, as NumPy and PyTorch have them.
NAMES = tuple(_NUMPY_NAMES.values())
_OWN_NAMES = {name: own for own, name in _NUMPY_NAMES.items()}


def type_name(dtype: Any) -> str:
    """The name of an element type: "bf16", numpy.float32, ml_dtypes.bfloat16, torch.bfloat16 all have one."""
    if isinstance(dtype, str):
        name = dtype
    elif type(dtype).__module__.partition(".")[0] == "torch":
        name = str(dtype).removeprefix("torch.")
    else:
        name = numpy.dtype(dtype).name
    return _OWN_NAMES.get(name, name)


def numpy_type(name: str) -> numpy.dtype:
    """NumPy's type of a name; those of bf16 and f8 are ml_dtypes'."""
    name = _NUMPY_NAMES[type_name(name)]
    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, name))
    return numpy.dtype(name)


def library_of(array: Any) -> str:
    """The library that an array, or an element type, belongs to: "numpy", "torch", "cupy", "jax" or "tandem"."""
    if isinstance(array, _core.Array):
        return "tandem"
    module = type(array).__module__.partition(".")[0]
    return {"jaxlib": "jax"}.get(module, module) if module in ("torch", "cupy", "jax", "jaxlib") else "numpy"


def to_library(array: _core.Array, library: str) -> Any:
    """The array as one of that library, on the same memory."""
    if library == "numpy" and array.device.startswith("cpu"):
        return numpy.asarray(array).view(numpy_type(array.dtype))
    if library == "torch":
        import torch

        return torch.from_dlpack(array)
    if library == "cupy":
        import cupy

        return cupy.from_dlpack(array)
    if library == "jax":
        import jax.dlpack

        return jax.dlpack.from_dlpack(array)
    return array


def all_to_library(arrays: Sequence[_core.Array], library: str) -> list[Any]:
    """Each of the arrays as to_library() gives it."""
    return [to_library(array, library) for array in arrays]


def core_handle(name: str, handle: Any) -> _core.Handle | None:
    """What the extension takes for a handle of the package."""
    core = getattr(handle, "core", handle)
    if core is None or isinstance(core, _core.Handle):
        return core
    raise TypeError(f"{name}: got a {type(handle).__qualname__}, need a tandem.symm.Handle")


def as_list(arrays: Any) -> list[Any] | None:
    """None, or one array or several as a list."""
    if arrays is None:
        return None
    return list(arrays) if isinstance(arrays, (list, tuple)) else [arrays]


def current_stream(library: str, gpu: int) -> int | None:
    """The cudaStream_t that a library is using, as a number; None where it has no such notion."""
    if library == "torch":
        torch = sys.modules["torch"]
        # The number alone, without an object around it, which takes as long as a launch.
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        return torch.cuda.current_stream(gpu).cuda_stream if raw is None else raw(gpu)
    if library == "cupy":
        return sys.modules["cupy"].cuda.get_current_stream().ptr
    return None
