"""The ops that torch.ops.tandem has: schemas, implementations and fake implementations.

An implementation allocates its results by PyTorch, so that PyTorch's allocator and graphs own them. The fake one
allocates the same tensors and stops there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import tandem
from tandem._errors import Error

from . import _groups, _shapes

NAMESPACE = "tandem"
library = torch.library.Library(NAMESPACE, "DEF")
_TAGS = (torch.Tag.needs_fixed_stride_order, torch.Tag.pt2_compliant_tag)

# torch.ScalarType's numbers of the types that products can have.
_TYPES_BY_NUMBER = {
    5: torch.float16,
    6: torch.float32,
    15: torch.bfloat16,
    23: torch.float8_e5m2,
    24: torch.float8_e4m3fn,
}

Tensors = Sequence[torch.Tensor]


def _define(schema: str, real: Callable[..., Any], fake: Callable[..., Any]) -> None:
    name = schema.partition("(")[0]
    library.define(schema, tags=_TAGS)
    library.impl(name, real, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=library)


def _plain(tensor: Any) -> Any:
    """What DLPack can export: no gradient, no lazy conjugation or negation."""
    if isinstance(tensor, torch.Tensor):
        return tensor.detach().resolve_conj().resolve_neg()
    return None if tensor is None else [_plain(each) for each in tensor]


def _or_refuse_everywhere(check: Callable[[], Any], refused: Callable[[], Any]) -> Any:
    """The result of `check`. If it raises, `refused` makes the call as it is, so that the other ranks hear of it."""
    try:
        return check()
    except Error:
        refused()
        raise


# ---- all-gather, then products ----


def _gather_results(
    a: torch.Tensor, bs: Tensors, gather_dim: int, world: int, return_a: bool
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    _shapes.check_gather(a, bs, gather_dim, world)
    _shapes.check_types(["A", *(f"Bs[{i}]" for i in range(len(bs)))], [a, *bs])
    return _shapes.gather_outputs(a, bs, gather_dim, world, [b.dtype for b in bs], return_a)


def _all_gather_matmul(
    a: torch.Tensor, bs: Tensors, gather_dim: int, group_name: str, *, return_a: bool = True
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    group = _groups.group_of(group_name, a.device)
    left, rights = _plain(a), _plain(bs)
    gathered, outs = _or_refuse_everywhere(
        lambda: _gather_results(a, bs, gather_dim, group.size, return_a),
        lambda: tandem.fused_all_gather_matmul(left, rights, gather_dim, group=group),
    )
    tandem.fused_all_gather_matmul(
        left, rights, gather_dim, group=group, out=outs, gathered=False if gathered is None else gathered
    )
    return gathered, outs


def _all_gather_matmul_fake(
    a: torch.Tensor, bs: Tensors, gather_dim: int, group_name: str, *, return_a: bool = True
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    return _gather_results(a, bs, gather_dim, _groups.size_of(group_name), return_a)


_define(
    "fused_all_gather_matmul("
    "Tensor A, Tensor[] Bs, int gather_dim, str group_name, *, bool return_A = True) -> (Tensor?, Tensor[])",
    lambda *args, return_A=True: _all_gather_matmul(*args, return_a=return_A),
    lambda *args, return_A=True: _all_gather_matmul_fake(*args, return_a=return_A),
)


def _types_of(out_dtypes: Sequence[Any], bs: Tensors) -> list[torch.dtype]:
    types = []
    for out_dtype, b in zip(out_dtypes, bs):
        if isinstance(out_dtype, int):
            if out_dtype not in _TYPES_BY_NUMBER:
                _shapes.refuse(f"out_dtypes has {out_dtype}, which is no number of a type that products can have")
            out_dtype = _TYPES_BY_NUMBER[out_dtype]
        types.append(b.dtype if out_dtype is None else out_dtype)
    return types


def _scaled_gather_results(
    a: torch.Tensor, bs: Tensors, b_scales: Tensors, gather_dim: int, world: int, lists: dict[str, Sequence[Any]]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    _shapes.check_gather(a, bs, gather_dim, world)
    _shapes.check_f8("A", a)
    for i, b in enumerate(bs):
        _shapes.check_f8(f"Bs[{i}]", b)
    for name, values in {"B_scales": b_scales, **lists}.items():
        _shapes.check_length(name, values, bs)
    types = _types_of(lists["out_dtypes"], bs)
    gathered, outs = _shapes.gather_outputs(a, bs, gather_dim, world, types, True)
    assert gathered is not None
    return gathered, outs


def _all_gather_scaled_matmul(
    a: torch.Tensor,
    bs: Tensors,
    a_scale: torch.Tensor,
    b_scales: Tensors,
    gather_dim: int,
    group_name: str,
    biases: Sequence[torch.Tensor | None],
    result_scales: Sequence[torch.Tensor | None],
    out_dtypes: Sequence[Any],
    use_fast_accum: Sequence[bool],
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    group = _groups.group_of(group_name, a.device)
    lists = {
        "biases": biases,
        "result_scales": result_scales,
        "out_dtypes": out_dtypes,
        "use_fast_accum": use_fast_accum,
    }
    operands = (_plain(a), _plain(bs), _plain(a_scale), _plain(b_scales), gather_dim)
    gathered, outs = _or_refuse_everywhere(
        lambda: _scaled_gather_results(a, bs, b_scales, gather_dim, group.size, lists),
        lambda: tandem.fused_all_gather_scaled_matmul(*operands, group=group),
    )
    tandem.fused_all_gather_scaled_matmul(
        *operands,
        group=group,
        bias=_plain(biases) if any(bias is not None for bias in biases) else None,
        result_scale=_plain(result_scales) if any(scale is not None for scale in result_scales) else None,
        fast_accum=all(use_fast_accum),
        out=outs,
        gathered=gathered,
    )
    return gathered, outs


def _all_gather_scaled_matmul_fake(
    a: torch.Tensor,
    bs: Tensors,
    a_scale: torch.Tensor,
    b_scales: Tensors,
    gather_dim: int,
    group_name: str,
    biases: Sequence[torch.Tensor | None],
    result_scales: Sequence[torch.Tensor | None],
    out_dtypes: Sequence[Any],
    use_fast_accum: Sequence[bool],
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    lists = {
        "biases": biases,
        "result_scales": result_scales,
        "out_dtypes": out_dtypes,
        "use_fast_accum": use_fast_accum,
    }
    return _scaled_gather_results(a, bs, b_scales, gather_dim, _groups.size_of(group_name), lists)


_define(
    "fused_all_gather_scaled_matmul("
    "Tensor A, Tensor[] Bs, Tensor A_scale, Tensor[] B_scales, int gather_dim, str group_name, "
    "Tensor?[] biases, Tensor?[] result_scales, ScalarType?[] out_dtypes, bool[] use_fast_accum) "
    "-> (Tensor, Tensor[])",
    _all_gather_scaled_matmul,
    _all_gather_scaled_matmul_fake,
)


# ---- products, then reduce-scatter ----


def _scatter_result(
    names: tuple[str, str], lefts: Tensors, rights: Tensors, reduce_op: str, scatter_dim: int, world: int
) -> torch.Tensor:
    _shapes.check_scatter(names, lefts, rights, scatter_dim, reduce_op)
    _shapes.check_types([names[0]] * len(lefts) + [names[1]] * len(rights), [*lefts, *rights])
    product = [*lefts[0].shape[:-1], rights[0].shape[1]]
    return lefts[0].new_empty(_shapes.scattered_sizes(product, scatter_dim, world))


def _products_reduce_scatter(
    names: tuple[str, str], lefts: Tensors, rights: Tensors, reduce_op: str, scatter_dim: int, group_name: str
) -> torch.Tensor:
    if not lefts:
        _shapes.refuse("As is empty, need at least one matrix")
    group = _groups.group_of(group_name, lefts[0].device)
    operands = (_plain(lefts), _plain(rights), scatter_dim, reduce_op)
    out = _or_refuse_everywhere(
        lambda: _scatter_result(names, lefts, rights, reduce_op, scatter_dim, group.size),
        lambda: tandem.fused_matmul_reduce_scatter(*operands, group=group),
    )
    tandem.fused_matmul_reduce_scatter(*operands, group=group, out=out)
    return out


_define(
    "fused_matmul_reduce_scatter(Tensor A, Tensor B, str reduce_op, int scatter_dim, str group_name) -> Tensor",
    lambda a, b, op, dim, group: _products_reduce_scatter(("A", "B"), [a], [b], op, dim, group),
    lambda a, b, op, dim, group: _scatter_result(("A", "B"), [a], [b], op, dim, _groups.size_of(group)),
)
_define(
    "fused_matmuls_reduce_scatter("
    "Tensor[] As, Tensor[] Bs, str reduce_op, int scatter_dim, str group_name) -> Tensor",
    lambda as_, bs, op, dim, group: _products_reduce_scatter(("As", "Bs"), as_, bs, op, dim, group),
    lambda as_, bs, op, dim, group: _scatter_result(("As", "Bs"), as_, bs, op, dim, _groups.size_of(group)),
)


def _scaled_operands(
    a: torch.Tensor, a_scale: torch.Tensor, scatter_dim: int, passed_dim: int, output_shape: Sequence[int] | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """A and its scale with the leading sizes of the product before it is scattered."""
    if a.dim() < 2:
        _shapes.refuse(f"A has sizes {list(a.shape)}, need at least 2 dims")
    _shapes.check_dim("scatter_dim_after_maybe_reshape", passed_dim, a)
    if output_shape is None or list(output_shape[:-1]) == list(a.shape[:-1]):
        return a, a_scale
    if not 0 <= scatter_dim < len(output_shape):
        _shapes.refuse(f"orig_scatter_dim is {scatter_dim}, need 0 to {len(output_shape) - 1}")
    leading = output_shape[:-1]
    scale = a_scale if a_scale.numel() == 1 else _shapes.unflattened(a_scale, "A_scale", leading)
    return _shapes.unflattened(a, "A", leading), scale


def _scaled_scatter_result(
    a: torch.Tensor,
    b: torch.Tensor,
    reduce_op: str,
    scatter_dim: int,
    world: int,
    output_shape: Sequence[int] | None,
    dtype: torch.dtype | None,
) -> torch.Tensor:
    _shapes.check_scatter(("A", "B"), [a], [b], scatter_dim, reduce_op)
    _shapes.check_f8("A", a)
    _shapes.check_f8("B", b)
    product = [*a.shape[:-1], b.shape[1]]
    if output_shape is not None and output_shape[-1] != product[-1]:
        _shapes.refuse(f"output_shape is {list(output_shape)}, need {product}")
    return a.new_empty(_shapes.scattered_sizes(product, scatter_dim, world), dtype=dtype or a.dtype)


def _scaled_matmul_reduce_scatter(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor,
    b_scale: torch.Tensor,
    reduce_op: str,
    orig_scatter_dim: int,
    scatter_dim_after_maybe_reshape: int,
    group_name: str,
    output_shape: Sequence[int] | None,
    bias: torch.Tensor | None = None,
    result_scale: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> torch.Tensor:
    group = _groups.group_of(group_name, a.device)

    def check() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        left, scale = _scaled_operands(a, a_scale, orig_scatter_dim, scatter_dim_after_maybe_reshape, output_shape)
        result = _scaled_scatter_result(left, b, reduce_op, orig_scatter_dim, group.size, output_shape, out_dtype)
        return left, scale, result

    def refused() -> None:
        operands = (_plain(a), _plain(b), _plain(a_scale), _plain(b_scale), orig_scatter_dim, reduce_op)
        tandem.fused_scaled_matmul_reduce_scatter(*operands, group=group)

    left, scale, out = _or_refuse_everywhere(check, refused)
    tandem.fused_scaled_matmul_reduce_scatter(
        _plain(left),
        _plain(b),
        _plain(scale),
        _plain(b_scale),
        orig_scatter_dim,
        reduce_op,
        group=group,
        bias=_plain(bias),
        result_scale=_plain(result_scale),
        fast_accum=use_fast_accum,
        out_dtype=out.dtype,
        out=out,
    )
    return out


def _scaled_matmul_reduce_scatter_fake(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor,
    b_scale: torch.Tensor,
    reduce_op: str,
    orig_scatter_dim: int,
    scatter_dim_after_maybe_reshape: int,
    group_name: str,
    output_shape: Sequence[int] | None,
    bias: torch.Tensor | None = None,
    result_scale: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> torch.Tensor:
    world = _groups.size_of(group_name)
    left, _ = _scaled_operands(a, a_scale, orig_scatter_dim, scatter_dim_after_maybe_reshape, output_shape)
    return _scaled_scatter_result(left, b, reduce_op, orig_scatter_dim, world, output_shape, out_dtype)


_define(
    "fused_scaled_matmul_reduce_scatter("
    "Tensor A, Tensor B, Tensor A_scale, Tensor B_scale, str reduce_op, int orig_scatter_dim, "
    "int scatter_dim_after_maybe_reshape, str group_name, SymInt[]? output_shape, Tensor? bias = None, "
    "Tensor? result_scale = None, ScalarType? out_dtype = None, bool use_fast_accum = False) -> Tensor",
    _scaled_matmul_reduce_scatter,
    _scaled_matmul_reduce_scatter_fake,
)


# ---- one rank ----


def _async_input_result(a: torch.Tensor, b: torch.Tensor, signals: torch.Tensor, pivot: int) -> torch.Tensor:
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        _shapes.refuse(f"a has sizes {list(a.shape)} and b {list(b.shape)}, need [m, k] and [k, n]")
    _shapes.check_types(["a", "b"], [a, b])
    if signals.dim() != 1 or signals.dtype != torch.uint32:
        got = f"{signals.dtype} {list(signals.shape)}"
        _shapes.refuse(f"a_chunk_signals is {got}, need uint32 of one dim")
    if not 0 <= pivot < signals.shape[0]:
        _shapes.refuse(f"a_chunk_pivot is {pivot}, need 0 to {signals.shape[0] - 1}")
    return a.new_empty([a.shape[0], b.shape[1]])


def _async_input_mm(a: torch.Tensor, b: torch.Tensor, signals: torch.Tensor, pivot: int) -> torch.Tensor:
    out = _async_input_result(a, b, signals, pivot)
    device = _groups.device_of(a)
    tandem.async_input_mm(_plain(a), _plain(b), _plain(signals), pivot, out=out, device=device)
    return out


for _name in ("async_input_mm", "_async_input_mm"):  # the second is PyTorch's
    _define(
        f"{_name}(Tensor a, Tensor b, Tensor a_chunk_signals, int a_chunk_pivot) -> Tensor",
        _async_input_mm,
        _async_input_result,
    )


# ---- collectives along any dim, which gradients need ----


def _gathered(input: torch.Tensor, gather_dim: int, world: int) -> torch.Tensor:
    _shapes.check_dim("gather_dim", gather_dim, input)
    order = [input.shape[gather_dim] * world, *input.shape[:gather_dim], *input.shape[gather_dim + 1 :]]
    return input.new_empty(order)


def _all_gather(input: torch.Tensor, gather_dim: int, group_name: str) -> torch.Tensor:
    group = _groups.group_of(group_name, input.device)
    out = _gathered(input, gather_dim, group.size)
    tandem.all_gather(_plain(input).movedim(gather_dim, 0).contiguous(), group=group, out=out)
    return out.movedim(0, gather_dim)


_define(
    "all_gather(Tensor input, int gather_dim, str group_name) -> Tensor",
    _all_gather,
    lambda input, dim, group: _gathered(input, dim, _groups.size_of(group)).movedim(0, dim),
)


def _scattered(input: torch.Tensor, reduce_op: str, scatter_dim: int, world: int) -> torch.Tensor:
    _shapes.check_dim("scatter_dim", scatter_dim, input)
    _shapes.check_reduce_op(reduce_op)
    return input.new_empty(_shapes.scattered_sizes(input.shape, scatter_dim, world))


def _reduce_scatter(input: torch.Tensor, reduce_op: str, scatter_dim: int, group_name: str) -> torch.Tensor:
    group = _groups.group_of(group_name, input.device)
    out = _scattered(input, reduce_op, scatter_dim, group.size)
    rows = _plain(input).movedim(scatter_dim, 0).contiguous()
    tandem.reduce_scatter(rows, reduce_op, group=group, out=out.movedim(scatter_dim, 0))
    return out


_define(
    "reduce_scatter(Tensor input, str reduce_op, int scatter_dim, str group_name) -> Tensor",
    _reduce_scatter,
    lambda input, op, dim, group: _scattered(input, op, dim, _groups.size_of(group)),
)
