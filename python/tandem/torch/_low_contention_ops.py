"""Collectives that run beside what the current stream does, and their gradients.

They return at once. `wait_tensor` of PyTorch waits for a result, as for those of its own functional collectives.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch.distributed._functional_collectives import wait_tensor  # its module gives the op a gradient

import tandem

from . import _gradients, _groups, _ops, _shapes

_ops_of = getattr(torch.ops, _ops.NAMESPACE)


def _gathered(input: torch.Tensor, gather_dim: int, world: int, rank: int, total: int | None) -> torch.Tensor:
    _shapes.check_tensors({"tensor": input})
    dim = _shapes.dim_of("gather_dim", gather_dim, input)
    sizes = list(input.shape)
    if total is None:
        sizes[dim] *= world
    else:
        _shapes.check_own_rows("total", total, f"dim {dim} of tensor", sizes[dim], world, rank)
        sizes[dim] = total
    return input.new_empty(sizes)


def _scattered(input: torch.Tensor, reduce_op: str, scatter_dim: int, world: int, rank: int) -> torch.Tensor:
    _shapes.check_tensors({"tensor": input})
    _shapes.check_reduce_op(reduce_op)
    dim = _shapes.dim_of("scatter_dim", scatter_dim, input)
    sizes = list(input.shape)
    is_even = sizes[dim] % world == 0
    sizes[dim] = sizes[dim] // world if is_even else _shapes.own_rows(sizes[dim], world, rank)
    return input.new_empty(sizes)


_known_gathered = _ops._checked_once(_gathered)
_known_scattered = _ops._checked_once(_scattered)


def _all_gather(input: torch.Tensor, gather_dim: int, group_name: str, *, total: int | None = None) -> torch.Tensor:
    with _ops._group_for(group_name, input) as group:
        out = _known_gathered(input, gather_dim, group.size, group.rank, total)
    call = functools.partial(
        tandem.low_contention_all_gather,
        total=out.shape[gather_dim],
        group=group,
        gather_dim=gather_dim % input.dim(),
    )
    return _groups.lane_of(group_name, input.device).run(_ops._plain(input).contiguous(), out, call)


def _reduce_scatter(input: torch.Tensor, reduce_op: str, scatter_dim: int, group_name: str) -> torch.Tensor:
    with _ops._group_for(group_name, input) as group:
        out = _known_scattered(input, reduce_op, scatter_dim, group.size, group.rank)
    call = functools.partial(
        tandem.low_contention_reduce_scatter,
        reduce_op=reduce_op,
        group=group,
        scatter_dim=scatter_dim % input.dim(),
    )
    return _groups.lane_of(group_name, input.device).run(_ops._plain(input).contiguous(), out, call)


@functools.cache
def _lower(inductor: Any) -> None:
    """Tells Inductor that these ops read their inputs until the wait. Otherwise it would give an input's memory to
    another tensor as soon as the op has returned."""
    from torch._inductor import ir

    def lowering_of(op: Any) -> Any:
        def lower(input: Any, *args: Any, **kwargs: Any) -> Any:
            return ir.TensorBox.create(ir._CollectiveKernel.create_out_of_place(op, input, *args, **kwargs))

        return lower

    for name in ("low_contention_all_gather", "low_contention_reduce_scatter"):
        op = getattr(_ops_of, name).default
        inductor.add_layout_constraint(op, inductor.constrain_to_fx_strides)
        inductor.register_lowering(op, type_promotion_kind=None)(lowering_of(op))


def _traced(result: torch.Tensor) -> torch.Tensor:
    """The result of a fake call. Before Inductor compiles one, it is imported and has the program traced."""
    inductor = sys.modules.get("torch._inductor.lowering")
    if inductor is not None and hasattr(inductor, "register_lowering"):
        _lower(inductor)
    return result


_ops._define(
    "low_contention_all_gather(Tensor tensor, int gather_dim, str group_name, *, SymInt? total = None) -> Tensor",
    _all_gather,
    lambda input, dim, group, *, total=None: _traced(
        _gathered(input, dim, _groups.size_of(group), _groups.rank_of(group), total)
    ),
)
_ops._define(
    "low_contention_reduce_scatter(Tensor tensor, str reduce_op, int scatter_dim, str group_name) -> Tensor",
    _reduce_scatter,
    lambda input, op, dim, group: _traced(_scattered(input, op, dim, _groups.size_of(group), _groups.rank_of(group))),
)


# ---- gradients: the results of a backward are complete ----


def _gather_setup(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    _, ctx.dim, ctx.group_name = inputs


def _gather_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    return wait_tensor(_ops_of.low_contention_reduce_scatter(grad, "sum", ctx.dim, ctx.group_name)), None, None


def _scatter_setup(ctx: Any, inputs: Any, output: Any) -> None:
    input, reduce_op, ctx.dim, ctx.group_name = inputs
    world = _groups.size_of(ctx.group_name)
    ctx.divisor = world if reduce_op == "avg" else 1
    size = input.shape[ctx.dim]
    ctx.total = None if size % world == 0 else size


def _scatter_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    share = grad / ctx.divisor if ctx.divisor != 1 else grad
    whole = _ops_of.low_contention_all_gather(share, ctx.dim, ctx.group_name, total=ctx.total)
    return wait_tensor(whole), None, None, None


_gradients.register("low_contention_all_gather", _gather_backward, _gather_setup)
_gradients.register("low_contention_reduce_scatter", _scatter_backward, _scatter_setup)
