"""Collectives, and the shard rule."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _arrays, _core
from ._group import default_device, group_or_default
from ._streams import collective, stream_of


class Shard(NamedTuple):
    """One rank's part [offset, offset + size) of a dimension."""

    offset: int
    size: int


def shard_of(total: int, size: int, rank: int) -> Shard:
    """The shard of a rank by the shard rule, which is that of torch.chunk: late shards may be short or empty."""
    stride = -(-total // size)
    begin = min(total, rank * stride)
    return Shard(begin, min(total, begin + stride) - begin)


def all_gather(
    input: Any,
    total: int | None = None,
    group: _core.Group | None = None,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Collects every rank's rows in rank order. A collective call.

    Args:
        input: [s_r, ...], contiguous, of any type. s_r follows the shard rule over `total`.
        total: rows of all ranks. The default is W times this rank's: right where all shards are equal.
        out: [total, ...] to write, contiguous. The input may be its own place in it.
        stream: as for fused_all_gather_matmul().

    Returns:
        [total, ...]: `out`, or a new array.

    Raises:
        Error: INVALID_ARGUMENT at once; MISMATCH, TIMEOUT, PEER_LOST when the work is waited for.
    """
    library = _arrays.library_of(input)
    with collective(group, stream, library) as (group, on):
        made = _core.all_gather(group, on, input, total, out)
    return out if made is None else _arrays.to_library(made, library)


def reduce_scatter(
    input: Any,
    reduce_op: str = "sum",
    group: _core.Group | None = None,
    *,
    bias: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Sums the ranks' inputs, or takes their mean. Rank r keeps its shard of the rows. A collective call.

    Args:
        input: [total, ...], contiguous; f32, bf16, f16 or f8.
        reduce_op: "sum" or "avg".
        bias: [last] of the output's type, added once.
        out: [s_r, ...] to write, of the input's type or f32, any strides.
        stream: as for fused_all_gather_matmul().

    Returns:
        [s_r, ...]: `out`, or a new array of the input's type.

    Raises:
        Error: as all_gather().
    """
    library = _arrays.library_of(input)
    with collective(group, stream, library) as (group, on):
        made = _core.reduce_scatter(group, on, input, out, reduce_op, bias)
    return out if made is None else _arrays.to_library(made, library)


def low_contention_all_gather(
    input: Any,
    total: int | None = None,
    group: _core.Group | None = None,
    *,
    gather_dim: int = 0,
    input_handle: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """As all_gather(), along any dimension, for a product that runs beside it on another stream.

    Copy engines move the data, between two barriers: see low_contention_barriers(). On CPUs the ranks' cores copy. A
    collective call.

    Args:
        input: a shard of any type, whose size in `gather_dim` follows the shard rule over `total`. Its strides are those
            that copy engines take; with a handle it is contiguous.
        total: the size of all shards together. The default is W times this rank's: right where all shards are equal.
        gather_dim: the dimension, from 0 on.
        input_handle: a tandem.symm.Handle of the memory that holds the input, at the same place on every rank. Peers
            then read the input in place, and no workspace is used.
        out: an array to write. The input may be its own place in it.
        stream: as for fused_all_gather_matmul().

    Returns:
        `out`, or a new array.

    Raises:
        Error: as all_gather(); UNSUPPORTED for strides that would take more than 64 copies a shard.
    """
    library = _arrays.library_of(input)
    with collective(group, stream, library) as (group, on):
        handle = None if input_handle is None else _arrays.core_handle("input_handle", input_handle)
        made = _core.low_contention_all_gather(group, on, input, total, out, gather_dim, handle)
    return out if made is None else _arrays.to_library(made, library)


def low_contention_reduce_scatter(
    input: Any,
    reduce_op: str = "sum",
    group: _core.Group | None = None,
    *,
    scatter_dim: int = 0,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """As reduce_scatter(), along any dimension, for a product that runs beside it on another stream.

    Copy engines push the chunks to their owners, and one small kernel adds them. The bits are those of
    reduce_scatter(). On CPUs the ranks' cores copy and add. A collective call.

    Args:
        input: all rows of this rank's summand; f32, bf16, f16 or f8; of strides that copy engines take. It is read where
            it lies.
        reduce_op: "sum" or "avg".
        scatter_dim: the dimension, from 0 on.
        out: this rank's shard to write, of the input's type or f32, any strides. It may be its own place in the input.
        stream: as for fused_all_gather_matmul().

    Returns:
        `out`, or a new array of the input's type.

    Raises:
        Error: as low_contention_all_gather().
    """
    library = _arrays.library_of(input)
    with collective(group, stream, library) as (group, on):
        made = _core.low_contention_reduce_scatter(group, on, input, out, reduce_op, scatter_dim)
    return out if made is None else _arrays.to_library(made, library)


def low_contention_barriers(group: _core.Group | None = None) -> str:
    """What the barriers of low-contention ops are on the group's device. Known once it has run such an op.

    Returns:
        "stream operations", which take no multiprocessor; "kernels" of one warp, where ranks share a GPU or a driver
        refuses such operations; or "cores".
    """
    group = group_or_default(group)
    return _core.low_contention_barriers(group, group.device.stream)


def all_reduce(
    input: Any,
    reduce_op: str = "sum",
    group: _core.Group | None = None,
    *,
    bias: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Sums the ranks' inputs, or takes their mean; every rank gets all of it, with the same bits. A collective call.

    Args:
        input: [total, ...], contiguous; f32, bf16, f16 or f8.
        reduce_op: "sum" or "avg".
        bias: [last] of the output's type, added once.
        out: an array to write, contiguous, with the input's sizes; of its type or f32. It may be the input.
        stream: as for fused_all_gather_matmul().

    Returns:
        [total, ...]: `out`, or a new array of the input's type.

    Raises:
        Error: as all_gather().
    """
    library = _arrays.library_of(input)
    with collective(group, stream, library) as (group, on):
        made = _core.all_reduce(group, on, input, out, reduce_op, bias)
    return out if made is None else _arrays.to_library(made, library)


def all_gather_with_progress(
    input: Any,
    input_handle: Any,
    progress: Any,
    splits_per_rank: int = 1,
    group: _core.Group | None = None,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Collects every rank's rows and writes a progress word after each piece, for a consumer that already runs.

    A collective call.

    Args:
        input: [rows, ...], contiguous, in symmetric memory whose handle is `input_handle`.
        input_handle: a tandem.symm.Handle.
        progress: u32 [W * splits_per_rank], zero at the start. Word q * splits_per_rank + i becomes 1 when piece i of
            rank q is complete.
        out: [W * rows, ...] to write.
        stream: as for fused_all_gather_matmul().

    Returns:
        [W * rows, ...]: `out`, or a new array.

    Raises:
        Error: INVALID_ARGUMENT for an input that is not contiguous or not symmetric, or for wrong sizes.
    """
    library = _arrays.library_of(input)
    with collective(group, stream, library) as (group, on):
        handle = _arrays.core_handle("input_handle", input_handle)
        made = _core.all_gather_with_progress(group, on, input, out, progress, splits_per_rank, handle)
    return out if made is None else _arrays.to_library(made, library)


def reduce_stack(
    stack: Any,
    reduce_op: str = "sum",
    *,
    bias: Any = None,
    out: Any = None,
    device: _core.Device | _core.Group | None = None,
    stream: Any = None,
) -> Any:
    """Sums dim 0 of `stack`, or takes the mean, and adds the bias. No other rank takes part.

    Args:
        stack: [W, rows..., n], contiguous; types as reduce_scatter().
        bias: [n].
        out: [rows..., n] to write, any strides.
        device: the default is that of the default group, or else the CPU.

    Returns:
        [rows..., n]: `out`, or a new array of the stack's type.
    """
    library = _arrays.library_of(stack)
    with stream_of(default_device(device), stream, library) as on:
        made = _core.reduce_stack(on, stack, out, reduce_op, bias)
    return out if made is None else _arrays.to_library(made, library)
