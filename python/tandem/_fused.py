"""Products with their communication hidden inside."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from . import _arrays, _core
from ._streams import collective

OneOrMore = Any  # an array, or a list or tuple of arrays


@dataclasses.dataclass(slots=True)
class GatherResult:
    """What an all-gather with products gives."""

    out: list[Any]  #: one product for each b
    gathered: Any  #: all of a, if it was asked for
    report: _core.OpReport  #: what ran, and why
    also_gathered: list[Any] = dataclasses.field(default_factory=list)  #: one for each also_gather


@dataclasses.dataclass(slots=True)
class ScatterResult:
    """What products with a reduce-scatter give."""

    out: Any  #: this rank's shard of the sum
    product: Any  #: this rank's own sum of products, if it was asked for
    report: _core.OpReport  #: what ran, and why


@dataclasses.dataclass(slots=True)
class AllReduceResult:
    """What products with an all-reduce give."""

    out: Any  #: the whole sum
    product: Any  #: this rank's own sum of products, if it was asked for
    report: _core.OpReport  #: what ran, and why


def _chosen(given: Any, made: Any, library: str) -> Any:
    """The caller's own array, or the new one in his kind of array."""
    if isinstance(made, _core.Array):
        return _arrays.to_library(made, library)
    return None if given is None or isinstance(given, bool) else given


def fused_all_gather_matmul(
    a: Any,
    b: OneOrMore,
    gather_dim: int = 0,
    gather_size: int | None = None,
    group: _core.Group | None = None,
    *,
    bias: OneOrMore | None = None,
    out: OneOrMore | None = None,
    gathered: Any = False,
    a_handle: Any = None,
    algorithm: str = "auto",
    plan_n: int = 0,
    stream: Any = None,
) -> GatherResult:
    """Gathers a along a dim and multiplies it with each b: out_i = all_gather(a) @ b_i (+ bias_i).

    A collective call. Rank r holds its shard of `gather_dim` by the shard rule: `ceil(gather_size / W)` rows each, late
    shards shorter or empty, as tandem.shard_of() and torch.chunk() cut.

    Args:
        a: this rank's shard [..., k]; f32, bf16 or f16; any strides.
        b: [k, n_i] each, of a's type; [gather_size, n_i] if the last dim is gathered. An array or a list of them.
        gather_dim: in [0, a.ndim).
        gather_size: size of gather_dim over all ranks. The default is W times the shard's: right where all shards are
            equal.
        group: the default is that of the last tandem.init().
        bias: [n_i] for each b.
        out: arrays to write, one for each b. Their memory order has the gathered dim outermost.
        gathered: True, or an array to write: the result also has all of a.
        a_handle: the tandem.symm.Handle of `a` if that is symmetric memory: peers then read the shard in place.
        algorithm: "auto", "native", "pipelined" or "serial".
        plan_n: columns of one rank's products together, for "auto" to count with; the same on every rank.
        stream: a tandem.Stream, or on GPUs a stream of another library. See docs/guide/python.md.

    Returns:
        `.out`, a list with one product for each b, of a's sizes with gather_size and n_i in their places;
        `.gathered`; `.report`.

    Raises:
        Error: INVALID_ARGUMENT at once, and MISMATCH on the other ranks; MISMATCH on every rank if dtype, k,
            gather_size, gather_dim, plan_n or algorithm differ; TIMEOUT or PEER_LOST when the work is waited for.
    """
    library = _arrays.library_of(a)
    outs = _arrays.as_list(out)
    with collective(group, stream, library) as (group, on):
        made, whole, report = _core.all_gather_matmul(
            group,
            on,
            a,
            _arrays.as_list(b),
            gather_dim,
            gather_size,
            outs,
            gathered,
            _arrays.as_list(bias),
            _arrays.core_handle("a_handle", a_handle),
            algorithm,
            plan_n,
        )
    results = outs if outs is not None else _arrays.all_to_library(made, library)
    return GatherResult(results, _chosen(gathered, whole, library), report)


def fused_matmul_reduce_scatter(
    a: OneOrMore,
    b: OneOrMore,
    scatter_dim: int = 0,
    reduce_op: str = "sum",
    group: _core.Group | None = None,
    *,
    bias: Any = None,
    out: Any = None,
    product: Any = False,
    partials: Any = None,
    algorithm: str = "auto",
    plan_k: int = 0,
    stream: Any = None,
) -> ScatterResult:
    """Sums a_j @ b_j over j and over the group, and leaves this rank's shard of scatter_dim.

    A collective call.

    Args:
        a: [..., k_j] each; f32, bf16 or f16; any strides. An array or a list of them.
        b: [k_j, n] each, of a's type; as many as a.
        scatter_dim: in [0, a.ndim); the last dim scatters n.
        reduce_op: "sum" or "avg".
        group: the default is that of the last tandem.init().
        bias: [n], added once, after the mean.
        out: an array to write, contiguous, with the sizes of the result.
        product: True, or an array [..., n] to write: the result also has this rank's own sum of a_j @ b_j.
        partials: type in which partial sums travel: out's (default), or f32.
        algorithm: "auto", "pipelined" or "serial".
        plan_k: the sum of one rank's k_j, for "auto" to count with; the same on every rank.
        stream: as for fused_all_gather_matmul().

    Returns:
        `.out`, of a's sizes with n last and this rank's shard of scatter_dim; `.product`; `.report`.

    Raises:
        Error: as fused_all_gather_matmul().
    """
    lefts = _arrays.as_list(a) or []
    library = _arrays.library_of(lefts[0]) if lefts else "numpy"
    with collective(group, stream, library) as (group, on):
        made, own, report = _core.matmul_reduce_scatter(
            group,
            on,
            lefts,
            _arrays.as_list(b),
            scatter_dim,
            reduce_op,
            None if out is None else [out],
            product,
            bias,
            None if partials is None else _arrays.type_name(partials),
            algorithm,
            plan_k,
        )
    result = out if out is not None else _arrays.to_library(made[0], library)
    return ScatterResult(result, _chosen(product, own, library), report)


def fused_matmul_all_reduce(
    a: OneOrMore,
    b: OneOrMore,
    reduce_op: str = "sum",
    group: _core.Group | None = None,
    *,
    bias: Any = None,
    out: Any = None,
    product: Any = False,
    partials: Any = None,
    algorithm: str = "auto",
    plan_k: int = 0,
    stream: Any = None,
) -> AllReduceResult:
    """Sums a_j @ b_j over j and over the group; every rank gets all of it, with the same bits.

    A collective call.

    Args:
        a, b, reduce_op, group, bias, partials, plan_k, stream: as for fused_matmul_reduce_scatter().
        out: an array [..., n] to write, contiguous.
        product: True, or an array [..., n] to write: the result also has this rank's own sum of a_j @ b_j.
        algorithm: "auto", "pipelined" or "serial".

    Returns:
        `.out`, of a's sizes with n last; `.product`; `.report`.

    Raises:
        Error: as fused_all_gather_matmul().
    """
    lefts = _arrays.as_list(a) or []
    library = _arrays.library_of(lefts[0]) if lefts else "numpy"
    with collective(group, stream, library) as (group, on):
        made, own, report = _core.matmul_all_reduce(
            group,
            on,
            lefts,
            _arrays.as_list(b),
            reduce_op,
            None if out is None else [out],
            product,
            bias,
            None if partials is None else _arrays.type_name(partials),
            algorithm,
            plan_k,
        )
    result = out if out is not None else _arrays.to_library(made[0], library)
    return AllReduceResult(result, _chosen(product, own, library), report)


def _types_of(out_dtype: Any, count: int) -> list[str]:
    types = list(out_dtype) if isinstance(out_dtype, (list, tuple)) else [out_dtype] * count
    return [_arrays.type_name(each) for each in types]


def fused_all_gather_scaled_matmul(
    a: Any,
    b: OneOrMore,
    a_scale: Any = None,
    b_scale: OneOrMore | None = None,
    gather_dim: int = 0,
    gather_size: int | None = None,
    group: _core.Group | None = None,
    *,
    out_dtype: Any | Sequence[Any] = "bf16",
    scale_mode: str = "detect",
    quantize: Any = None,
    bias: OneOrMore | None = None,
    result_scale: OneOrMore | None = None,
    out: OneOrMore | None = None,
    gathered: Any = False,
    also_gather: OneOrMore | None = None,
    also_gathered: OneOrMore | None = None,
    fast_accum: bool = False,
    algorithm: str = "auto",
    plan_n: int = 0,
    stream: Any = None,
) -> GatherResult:
    """Gathers an fp8 a along a dim, or an a that becomes fp8 on arrival, and multiplies it with each b:
    out_i = (all_gather(a) @ b_i * scales + bias_i) * result_scale_i.

    A collective call.

    Args:
        a: this rank's shard [..., k], f8e4m3 or f8e5m2; any strides.
        b: f8 [k, n_i] each; [gather_size, n_i] if the last dim is gathered.
        a_scale: f32: one element; or the shard's rows, a.shape[:-1] + [1]; or all rows, the same on every rank.
            Scales of rows may be 2-D, [rows, 1].
        b_scale: f32 for each b: one element, or [1, n_i]. None with scale_mode "none".
        gather_dim, gather_size, group: as for fused_all_gather_matmul().
        out_dtype: type of the products, one or one for each b: f32, bf16, f16 or f8, which saturates.
        scale_mode: "detect", "tensorwise", "rowwise_sharded", "rowwise_replicated", "none"; or "blockwise_sharded",
            "blockwise_replicated": see fused_all_gather_block_scaled_matmul().
        quantize: "f8e4m3" or "f8e5m2": a is f32, bf16 or f16 and is gathered as it is. What has arrived is rounded by
            quantize_rows() right before its products. a_scale is None. scale_mode is "detect", a scale for each row,
            or "blockwise_sharded". For callers who need `gathered` too: to quantise first gathers fewer bytes.
        bias: [n_i] for each b, or None in its place.
        result_scale: f32, one element for each b, or None in its place.
        out, gathered: as for fused_all_gather_matmul().
        also_gather: further shards that the same schedule gathers, of any type.
        also_gathered: arrays to write for them.
        fast_accum: allows less exact sums; the CPU has none.
        algorithm, plan_n, stream: as for fused_all_gather_matmul().

    Returns:
        `.out`, a list; `.gathered`; `.also_gathered`, a list; `.report`.

    Raises:
        Error: as fused_all_gather_matmul(). UNSUPPORTED, with each reason, where the device cannot multiply them.
    """
    library = _arrays.library_of(a)
    rights = _arrays.as_list(b) or []
    outs = _arrays.as_list(out)
    others = _arrays.as_list(also_gathered)
    with collective(group, stream, library) as (group, on):
        made, whole, made_others, report = _core.all_gather_scaled_matmul(
            group,
            on,
            a,
            rights,
            a_scale,
            _arrays.as_list(b_scale),
            scale_mode,
            None if quantize is None else _arrays.type_name(quantize),
            gather_dim,
            gather_size,
            _types_of(out_dtype, len(rights)),
            outs,
            gathered,
            _arrays.as_list(bias),
            _arrays.as_list(result_scale),
            fast_accum,
            _arrays.as_list(also_gather),
            others,
            algorithm,
            plan_n,
        )
    results = outs if outs is not None else _arrays.all_to_library(made, library)
    beside = others if others is not None else _arrays.all_to_library(made_others, library)
    return GatherResult(results, _chosen(gathered, whole, library), report, beside)


def fused_all_gather_block_scaled_matmul(
    a: Any,
    b: OneOrMore,
    a_scale: Any,
    b_scale: OneOrMore,
    gather_dim: int = 0,
    gather_size: int | None = None,
    group: _core.Group | None = None,
    *,
    replicated: bool = False,
    **others: Any,
) -> GatherResult:
    """As fused_all_gather_scaled_matmul(), with scales by blocks of 128.

    A collective call. kb and nb_i are k and n_i by 128, rounded up. If the last dim is gathered, the slices of all
    ranks begin at multiples of 128.

    Args:
        a_scale: f32, the shard's: a.shape[:-1] + [kb], or 2-D, [rows, kb].
        b_scale: f32 for each b: [kb, n_i] or [kb, nb_i]; kb is that of all of k.
        replicated: whether a_scale is that of all of a, the same on every rank.
        a, b, gather_dim, gather_size, group, others: as for fused_all_gather_scaled_matmul().

    Returns, Raises: as fused_all_gather_scaled_matmul().
    """
    mode = "blockwise_replicated" if replicated else "blockwise_sharded"
    return fused_all_gather_scaled_matmul(
        a, b, a_scale, b_scale, gather_dim, gather_size, group, scale_mode=mode, **others
    )


def fused_scaled_matmul_reduce_scatter(
    a: OneOrMore,
    b: OneOrMore,
    a_scale: OneOrMore | None = None,
    b_scale: OneOrMore | None = None,
    scatter_dim: int = 0,
    reduce_op: str = "sum",
    group: _core.Group | None = None,
    *,
    out_dtype: Any = "bf16",
    bias: OneOrMore | None = None,
    result_scale: OneOrMore | None = None,
    out: Any = None,
    product: Any = False,
    partials: Any = None,
    fast_accum: bool = False,
    algorithm: str = "auto",
    plan_k: int = 0,
    stream: Any = None,
) -> ScatterResult:
    """Sums (a_j @ b_j * scales_j + bias_j) * result_scale_j over j and over the group; leaves this rank's shard.

    A collective call.

    Args:
        a: [..., k_j] each, f8e4m3 or f8e5m2, or f32, bf16 or f16; any strides.
        b: [k_j, n] each; as many as a.
        a_scale: f32 for each a: one element, a_j.shape[:-1] + [1], or [rows, 1]. A product has both scales or neither.
        b_scale: f32 for each b: one element, or [1, n].
        scatter_dim, reduce_op, group: as for fused_matmul_reduce_scatter().
        out_dtype: type of the result: f32, bf16, f16 or f8, which saturates.
        bias: [n] for each product. It is added on every rank before the sum over ranks: a sum holds it W times.
        result_scale: f32, one element for each product.
        out, product, partials, algorithm, plan_k, stream: as for fused_matmul_reduce_scatter().
        fast_accum: allows less exact sums; the CPU has none.

    Returns:
        `.out`, `.product`, `.report`, as fused_matmul_reduce_scatter().

    Raises:
        Error: as fused_all_gather_matmul(). UNSUPPORTED, with each reason, where the device cannot multiply them.
    """
    lefts = _arrays.as_list(a) or []
    library = _arrays.library_of(lefts[0]) if lefts else "numpy"
    with collective(group, stream, library) as (group, on):
        made, own, report = _core.scaled_matmul_reduce_scatter(
            group,
            on,
            lefts,
            _arrays.as_list(b),
            _arrays.as_list(a_scale),
            _arrays.as_list(b_scale),
            scatter_dim,
            reduce_op,
            _arrays.type_name(out_dtype),
            None if out is None else [out],
            product,
            _arrays.as_list(bias),
            _arrays.as_list(result_scale),
            None if partials is None else _arrays.type_name(partials),
            fast_accum,
            algorithm,
            plan_k,
        )
    result = out if out is not None else _arrays.to_library(made[0], library)
    return ScatterResult(result, _chosen(product, own, library), report)


def fused_scaled_matmul_all_reduce(
    a: OneOrMore,
    b: OneOrMore,
    a_scale: OneOrMore | None = None,
    b_scale: OneOrMore | None = None,
    reduce_op: str = "sum",
    group: _core.Group | None = None,
    *,
    out_dtype: Any = "bf16",
    bias: OneOrMore | None = None,
    result_scale: OneOrMore | None = None,
    out: Any = None,
    product: Any = False,
    partials: Any = None,
    fast_accum: bool = False,
    algorithm: str = "auto",
    plan_k: int = 0,
    stream: Any = None,
) -> AllReduceResult:
    """Sums (a_j @ b_j * scales_j + bias_j) * result_scale_j over j and over the group; every rank gets all of it.

    A collective call.

    Args:
        a, b, a_scale, b_scale, reduce_op, out_dtype, bias, result_scale, fast_accum: as for
            fused_scaled_matmul_reduce_scatter(). Rows of a_scale lie evenly in memory.
        group, out, product, partials, algorithm, plan_k, stream: as for fused_matmul_all_reduce().

    Returns:
        `.out`, `.product`, `.report`, as fused_matmul_all_reduce().

    Raises:
        Error: as fused_scaled_matmul_reduce_scatter().
    """
    lefts = _arrays.as_list(a) or []
    library = _arrays.library_of(lefts[0]) if lefts else "numpy"
    with collective(group, stream, library) as (group, on):
        made, own, report = _core.scaled_matmul_all_reduce(
            group,
            on,
            lefts,
            _arrays.as_list(b),
            _arrays.as_list(a_scale),
            _arrays.as_list(b_scale),
            reduce_op,
            _arrays.type_name(out_dtype),
            None if out is None else [out],
            product,
            _arrays.as_list(bias),
            _arrays.as_list(result_scale),
            None if partials is None else _arrays.type_name(partials),
            fast_accum,
            algorithm,
            plan_k,
        )
    result = out if out is not None else _arrays.to_library(made[0], library)
    return AllReduceResult(result, _chosen(product, own, library), report)
