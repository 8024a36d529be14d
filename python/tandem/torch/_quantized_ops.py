"""Ops that round their operands to fp8 themselves, with a scale for each row of A and each column of B.

A gradient of autograd has its tensor's type. That of an fp8 tensor would be fp8 without a scale, so ops on fp8 tensors
have none. The operands of these ops have 16 or 32 bits, and their gradients too.

Rounding counts as the identity. The backward is that of the ops without rounding, on the operands as they were. Its
products contract other dims than the forward's, so fp8 would need a second rounding of each operand by other scales.
Gradients also lose more than activations by fp8: their values are spread wider.
"""

from __future__ import annotations

import torch

import tandem

from . import _gradients, _groups, _ops, _shapes
from ._ops import Tensors


def _rounded_rows(
    a: torch.Tensor, outermost: int, quantize: torch.dtype, group: tandem.Group
) -> tuple[torch.Tensor, torch.Tensor]:
    """a as fp8, and the factor of each row that gives a again. Dim `outermost` is that in memory: ops copy no other."""
    out = _shapes.empty_with_outermost(a, a.shape, outermost, quantize)
    scale = _shapes.empty_with_outermost(a, [*a.shape[:-1], 1], outermost, torch.float32)
    tandem.quantize_rows(_ops._plain(a), quantize, out=out, scale=scale, device=group)
    return out, scale


def _rounded_columns(b: torch.Tensor, quantize: torch.dtype, group: tandem.Group) -> tuple[torch.Tensor, torch.Tensor]:
    """b as fp8, column-major as tensor cores take it, and the factor of each column."""
    out, scale = _rounded_rows(b.t(), 0, quantize, group)
    return out.t(), scale.t()


# ---- all-gather, then products ----


def _gather_results(
    a: torch.Tensor, bs: Tensors, gather_dim: int, world: int, return_a: bool, quantize: torch.dtype
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    results = _ops._gather_results(a, bs, gather_dim, world, return_a, None)
    _shapes.check_f8_type("quantize", quantize)
    if gather_dim == a.dim() - 1:
        _shapes.refuse(
            f"gather_dim is {gather_dim}, the last of A: a row's scale needs all of k, and a rank has a slice"
        )
    return results


_known_gather_results = _ops._checked_once(_gather_results)


def _all_gather_quantized_matmul(
    a: torch.Tensor,
    bs: Tensors,
    gather_dim: int,
    group_name: str,
    *,
    quantize: torch.dtype,
    use_fast_accum: bool = False,
    return_A: bool = True,
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    with _ops._group_for(group_name, a) as group:
        gathered, outs = _known_gather_results(a, bs, gather_dim, group.size, return_A, quantize)
        rounded = [_rounded_columns(b, quantize, group) for b in bs]
        # Where all of A is asked for, A travels as it is and is rounded on arrival. Else it travels as fp8.
        left, left_scale = (_ops._plain(a), None) if return_A else _rounded_rows(a, gather_dim, quantize, group)
    done = tandem.fused_all_gather_scaled_matmul(
        left,
        [right for right, _ in rounded],
        left_scale,
        [scale for _, scale in rounded],
        gather_dim,
        group=group,
        quantize=quantize if return_A else None,
        fast_accum=use_fast_accum,
        out=outs,
        gathered=False if gathered is None else gathered,
    )
    _ops.reports.append(done.report)
    return gathered, outs


_ops._define(
    "fused_all_gather_quantized_matmul(Tensor A, Tensor[] Bs, int gather_dim, str group_name, *, ScalarType quantize, "
    "bool use_fast_accum = False, bool return_A = True) -> (Tensor?, Tensor[])",
    _all_gather_quantized_matmul,
    lambda a, bs, dim, group, *, quantize, use_fast_accum=False, return_A=True: _gather_results(
        a, bs, dim, _groups.size_of(group), return_A, quantize
    ),
)
_gradients.register("fused_all_gather_quantized_matmul", _gradients.gather_backward, _gradients.gather_setup)


# ---- a product, then reduce-scatter ----


def _scatter_result(
    a: torch.Tensor, b: torch.Tensor, reduce_op: str, scatter_dim: int, world: int, quantize: torch.dtype
) -> torch.Tensor:
    out, _ = _ops._plain_reduction_results(("A", "B"), [a], [b], reduce_op, scatter_dim, world)
    _shapes.check_f8_type("quantize", quantize)
    return out


_known_scatter_result = _ops._checked_once(_scatter_result)


def _quantized_matmul_reduce_scatter(
    a: torch.Tensor,
    b: torch.Tensor,
    reduce_op: str,
    scatter_dim: int,
    group_name: str,
    *,
    quantize: torch.dtype,
    use_fast_accum: bool = False,
) -> torch.Tensor:
    with _ops._group_for(group_name, a) as group:
        out = _known_scatter_result(a, b, reduce_op, scatter_dim, group.size, quantize)
        left, left_scale = _rounded_rows(a, scatter_dim, quantize, group)
        right, right_scale = _rounded_columns(b, quantize, group)
    done = tandem.fused_scaled_matmul_reduce_scatter(
        left,
        right,
        left_scale,
        right_scale,
        scatter_dim,
        reduce_op,
        group=group,
        fast_accum=use_fast_accum,
        out_dtype=out.dtype,
        out=out,
        product=False,
    )
    _ops.reports.append(done.report)
    return out


_ops._define(
    "fused_quantized_matmul_reduce_scatter(Tensor A, Tensor B, str reduce_op, int scatter_dim, str group_name, *, "
    "ScalarType quantize, bool use_fast_accum = False) -> Tensor",
    _quantized_matmul_reduce_scatter,
    lambda a, b, op, dim, group, *, quantize, use_fast_accum=False: _scatter_result(
        a, b, op, dim, _groups.size_of(group), quantize
    ),
)
_gradients.register(
    "fused_quantized_matmul_reduce_scatter",
    _gradients.scatter_backward,
    lambda ctx, inputs, keyword_only_inputs, output: _gradients.scatter_setup(ctx, inputs, output),
)
