"""Which stream a call runs on."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from . import _arrays, _core
from ._errors import Error, ErrorCode
from ._group import group_or_default


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
def _beside_null_stream(stream: _core.Stream, library: str, gpu: int) -> Iterator[_core.Stream]:
    """A stream of tandem in the order of the library's default stream, which tandem cannot adopt."""
    if library == "torch":
        torch = sys.modules["torch"]
        current = torch.cuda.default_stream(gpu)
        own = torch.cuda.ExternalStream(stream.native, gpu)
        own.wait_stream(current)
        yield stream
        current.wait_stream(own)
    elif library == "cupy":
        cupy = sys.modules["cupy"]
        current = cupy.cuda.Stream.null
        own = cupy.cuda.ExternalStream(stream.native)
        own.wait_event(current.record())
        yield stream
        current.wait_event(own.record())
    else:
        raise Error(ErrorCode.UNSUPPORTED, "stream: the default stream cannot be used without PyTorch or CuPy")


@contextlib.contextmanager
def stream_of(device: _core.Device, stream: Any, library: str) -> Iterator[_core.Stream]:
    """The stream for a call with a library's arrays on `device`: the one that is given, or the library's current one."""
    if isinstance(stream, _core.Stream):
        yield stream
        return
    if device.name.startswith("cpu"):
        if stream is not None:
            raise TypeError(f"stream: got a {type(stream).__qualname__}, need a tandem.Stream on a CPU")
        yield device.stream
        return
    gpu = int(device.name.partition(":")[2])
    pointer = _arrays.current_stream(library, gpu) if stream is None else _pointer_of(stream)
    if pointer is None:
        yield device.stream
        device.stream.synchronize()  # the library has no stream that could wait
    elif _is_null(pointer):
        with _beside_null_stream(device.stream, library, gpu) as own:
            yield own
    else:
        yield device.adopt(pointer)


@contextlib.contextmanager
def collective(group: Any, stream: Any, library: str) -> Iterator[tuple[_core.Group, _core.Stream]]:
    """The group and the stream of a collective call. What is refused before the call reaches the library is refused
    on all ranks, as the library does with what it refuses itself."""
    group = group_or_default(group)
    try:
        with stream_of(group.device, stream, library) as on:
            yield group, on
    except Error:
        raise
    except Exception as error:
        with contextlib.suppress(Error):
            group.refuse_call(f"{type(error).__name__}: {error}")
        raise
