"""Which stream a call runs on."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from . import _arrays, _core


def _pointer_of(stream: Any) -> int:
    """The cudaStream_t of a number, or of a stream of PyTorch, CuPy or whoever has __cuda_stream__."""
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    raise TypeError(f"stream: got a {type(stream).__qualname__}, need a tandem.Stream or a CUDA stream")


def _is_null(pointer: int) -> bool:
    return pointer in (0, 1)  # PyTorch and CuPy: 0; DLPack's name of the legacy default stream: 1


@contextlib.contextmanager
def _beside_null_stream(stream: _core.Stream, array: Any) -> Iterator[_core.Stream]:
    """A stream of tandem in the order of the library's default stream, which tandem cannot adopt."""
    library = _arrays.library_of(array)
    if library == "torch":
        torch = sys.modules["torch"]
        current = torch.cuda.current_stream(array.device)
        own = torch.cuda.ExternalStream(stream.native, array.device)
        own.wait_stream(current)
        yield stream
        current.wait_stream(own)
    else:
        cupy = sys.modules["cupy"]
        current = cupy.cuda.get_current_stream()
        own = cupy.cuda.ExternalStream(stream.native)
        own.wait_event(current.record())
        yield stream
        current.wait_event(own.record())


@contextlib.contextmanager
def stream_of(device: _core.Device, stream: Any, array: Any) -> Iterator[_core.Stream]:
    """The stream for a call with `array` on `device`: the one that is given, or the array library's current one."""
    if isinstance(stream, _core.Stream):
        yield stream
        return
    if device.name.startswith("cpu"):
        if stream is not None:
            raise TypeError(f"stream: got a {type(stream).__qualname__}, need a tandem.Stream on a CPU")
        yield device.stream
        return
    pointer = _arrays.current_stream(array) if stream is None else _pointer_of(stream)
    if pointer is None:
        yield device.stream
        device.stream.synchronize()  # the library has no stream that could wait
    elif _is_null(pointer):
        with _beside_null_stream(device.stream, array) as own:
            yield own
    else:
        yield device.adopt(pointer)
