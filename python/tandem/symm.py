"""Symmetric memory: each rank's block, mapped by all ranks, with signals between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _arrays, _core
from ._group import group_or_default
from ._streams import stream_of

__all__ = ["FIRST_USER_CHANNEL", "Handle", "empty", "rendezvous", "set_signal_pad_size"]

#: Channels below this one belong to the library's ops.
FIRST_USER_CHANNEL = 8


def _library(given: str | None, dtype: Any, group: _core.Group) -> str:
    if given is not None:
        return given
    if _arrays.library_of(dtype) == "torch":
        return "torch"
    return "numpy" if group.device.name.startswith("cpu") else "tandem"


class Handle:
    """A rank's access to the memory and signal pads of one rendezvous.

    Buffers are arrays on the peers' memory, without a copy. They and the handle keep the memory alive. Calls with
    `stream` enqueue on it and return. Without it, on CPUs, they wait until their work is done.

    A signal from rank s to rank d on a channel is a word of d's pad. put_signal() sets it, and waits until an earlier
    one was taken. wait_signal() waits for it and takes it.
    """

    def __init__(self, core: _core.Handle, group: _core.Group, library: str):
        self._core = core
        self._group = group
        self._library = library

    @property
    def core(self) -> _core.Handle:
        """What fused ops take as a_handle."""
        return self._core

    @property
    def rank(self) -> int:
        """This rank."""
        return self._core.rank

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self._core.world_size

    @property
    def num_channels(self) -> int:
        """The number of channels; those from FIRST_USER_CHANNEL on are yours."""
        return self._core.num_channels

    @property
    def buffer_size_bytes(self) -> int:
        """The usable bytes of data, the same on every rank."""
        return self._core.buffer_size_bytes

    def buffer(self, rank: int, shape: Sequence[int], dtype: Any, storage_offset: int = 0) -> Any:
        """A rank's data as an array that starts `storage_offset` elements after the start of its block.

        Raises Error INVALID_ARGUMENT for a rank that does not exist, or more bytes than there are.
        """
        array = self._core.buffer(rank, list(shape), _arrays.type_name(dtype), storage_offset)
        return _arrays.to_library(array, self._library)

    def remote_tensor(self, peer: int, shape: Sequence[int], dtype: Any) -> Any:
        """A rank's tensor of the rendezvous: as buffer(), but from the tensor's own offset on."""
        array = self._core.remote_tensor(peer, list(shape), _arrays.type_name(dtype))
        return _arrays.to_library(array, self._library)

    def signal_pad(self, rank: int) -> Any:
        """A rank's pad: u32 words."""
        return _arrays.to_library(self._core.signal_pad(rank), self._library)

    def put_signal(
        self, dst_rank: int, channel: int = FIRST_USER_CHANNEL, timeout: float | None = None, *, stream: Any = None
    ) -> None:
        """Signals `dst_rank`. Earlier writes of this stream are visible after its wait_signal().

        `timeout` is the longest wait in seconds; the default is the group's op_timeout. Raises Error TIMEOUT or
        PEER_LOST when the work is waited for.
        """
        with stream_of(self._group.device, stream, self._library) as on:
            self._core.put_signal(on, dst_rank, channel, timeout)

    def wait_signal(
        self, src_rank: int, channel: int = FIRST_USER_CHANNEL, timeout: float | None = None, *, stream: Any = None
    ) -> None:
        """Waits for the signal of `src_rank` and takes it. As put_signal()."""
        with stream_of(self._group.device, stream, self._library) as on:
            self._core.wait_signal(on, src_rank, channel, timeout)

    def barrier(
        self, channel: int = FIRST_USER_CHANNEL, timeout: float | None = None, *, stream: Any = None
    ) -> None:
        """No rank passes before all have come. Writes before it are visible after it, on every rank."""
        with stream_of(self._group.device, stream, self._library) as on:
            self._core.barrier(on, channel, timeout)

    def get(self, to: Any, peer: int, offset: int = 0, *, stream: Any = None) -> None:
        """Reads to.size elements, which start `offset` elements after the tensor's start on `peer`, into `to`."""
        with stream_of(self._group.device, stream, self._library) as on:
            self._core.get(on, to, peer, offset)

    def put(self, from_: Any, peer: int, offset: int = 0, *, stream: Any = None) -> None:
        """Writes `from_` to the elements that start `offset` elements after the tensor's start on `peer`."""
        with stream_of(self._group.device, stream, self._library) as on:
            self._core.put(on, from_, peer, offset)

    def __repr__(self) -> str:
        return f"tandem.symm.Handle(rank {self.rank} of {self.world_size}, {self.buffer_size_bytes} bytes)"


def empty(
    shape: Sequence[int] | int, dtype: Any = "f32", group: _core.Group | None = None, *, library: str | None = None
) -> Any:
    """Allocates zeroed memory that peers can map after a rendezvous. No other rank takes part.

    Args:
        shape: the sizes of a contiguous array.
        dtype: "bf16", numpy.float32, torch.bfloat16, ...
        group: whose device is used.
        library: "numpy", "torch", "cupy", "jax" or "tandem". The default is NumPy on CPUs, PyTorch for a type of it.

    Raises:
        Error: OUT_OF_MEMORY with the bytes asked for and available; INVALID_ARGUMENT.
    """
    group = group_or_default(group)
    sizes = [shape] if isinstance(shape, int) else list(shape)
    array = _core.symm_empty(group, sizes, _arrays.type_name(dtype))
    return _arrays.to_library(array, _library(library, dtype, group))


def rendezvous(tensor: Any, group: _core.Group | None = None) -> Handle:
    """Maps every rank's block here. A collective call, which blocks.

    Args:
        tensor: an array from empty(), or a part of one. While its memory lives, the same start and group give the same
            handle without communication.

    Raises:
        Error: INVALID_ARGUMENT for other memory; MISMATCH on every rank if sizes or types differ; TIMEOUT; PEER_LOST.
    """
    group = group_or_default(group)
    return Handle(_core.symm_rendezvous(group, tensor), group, _arrays.library_of(tensor))


def set_signal_pad_size(num_bytes: int, group: _core.Group | None = None) -> None:
    """Sets the bytes of the pads of handles that this group makes later: the same on every rank, a multiple of 4*W."""
    _core.set_signal_pad_size(group_or_default(group), num_bytes)
