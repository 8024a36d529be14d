"""Which stream a call runs on."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
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
def _waited_for(stream: _core.Stream) -> Iterator[_core.Stream]:
    """A stream of tandem for a library without streams, none of which could wait for it."""
    yield stream
    stream.synchronize()


def stream_of(device: _core.Device, stream: Any, library: str) -> AbstractContextManager[_core.Stream]:
    """The stream for a call with a library's arrays on `device`: the given one, or the library's current one."""
    if isinstance(stream, _core.Stream):
        return nullcontext(stream)
    gpu = device.gpu
    if gpu is None:
        if stream is not None:
            raise TypeError(f"stream: got a {type(stream).__qualname__}, need a tandem.Stream on a CPU")
        return nullcontext(device.stream)
    pointer = _arrays.current_stream(library, gpu) if stream is None else _pointer_of(stream)
    if pointer is None:
        return _waited_for(device.stream)
    if _is_null(pointer):
        return _beside_null_stream(device.stream, library, gpu)
    return nullcontext(device.adopt(pointer))


class collective:
    """The group and the stream of a collective call. What is refused before the call reaches the library is refused on
    all ranks, as the library does with what it refuses itself."""

    __slots__ = ("_group", "_library", "_on", "_stream")

    def __init__(self, group: Any, stream: Any, library: str) -> None:
        self._group = group_or_default(group)
        self._stream, self._library = stream, library

    def __enter__(self) -> tuple[_core.Group, _core.Stream]:
        try:
            self._on = stream_of(self._group.device, self._stream, self._library)
            return self._group, self._on.__enter__()
        except Exception as error:
            self._refuse(error)
            raise

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, Exception):
            self._refuse(error)
        self._on.__exit__(kind, error, trace)

    def _refuse(self, error: Exception) -> None:
        if isinstance(error, Error):
            return
        with contextlib.suppress(Error):
            self._group.refuse_call(f"{type(error).__name__}: {error}")
