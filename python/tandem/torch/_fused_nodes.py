"""The nodes that passes make as calls of the ops of tandem.torch.

docs/design/graph.md has the nodes' arguments. A fused node makes a flat list of tensors where an op makes a tensor and
lists.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import _ops

_ops_of = getattr(torch.ops, _ops.NAMESPACE)


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of an op, and where in its result each of the node's results is."""

    op: Any
    args: Sequence[Any]
    kwargs: dict[str, Any]
    path_of: Callable[[int], tuple[int, ...]]  #: the index of a result to the indices that lead to it


def _all_gather_matmul(args: Sequence[Any], named: dict[str, Any]) -> Call:
    a, bs, dim, group = args
    kwargs = {name: named[name] for name in ("return_A", "gather_size") if name in named}

    def path_of(index: int) -> tuple[int, ...]:
        return (0,) if index == 0 else (1, index - 1)

    if "bias" in named or "gather_size" in named:
        biases = named.get("bias", [None] * len(bs))
        return Call(_ops_of.fused_all_gather_addmm.default, (a, bs, biases, dim, group), kwargs, path_of)
    return Call(_ops_of.fused_all_gather_matmul.default, (a, bs, dim, group), kwargs, path_of)


def _all_gather_scaled_matmul(args: Sequence[Any], named: dict[str, Any]) -> Call:
    count = len(args[1])

    def path_of(index: int) -> tuple[int, ...]:
        if index == 0:
            return (0,)
        return (1, index - 1) if index <= count else (2, index - 1 - count)

    operands = (*args, named.get("also_gather", []))
    kwargs = {name: named[name] for name in ("return_A", "scale_mode", "gather_size") if name in named}
    return Call(_ops_of.fused_all_gathers_scaled_matmul.default, operands, kwargs, path_of)


def _as_list(value: Any, count: int) -> list[Any]:
    """One argument for each product: a node has a list only where there are several."""
    return list(value) if isinstance(value, (list, tuple)) else [value] * count


def _scattered_or_product(index: int) -> tuple[int, ...]:
    return (index,)


def _matmul_reduce_scatter(args: Sequence[Any], named: dict[str, Any]) -> Call:
    a, b, reduce_op, dim, group = args
    lefts, rights = _as_list(a, 1), _as_list(b, 1)
    return_product = named.get("return_product", False)
    if "bias" in named or "padded" in named:  # each rank adds its own before the sum, as the op with scales does
        none = [None] * len(lefts)
        biases = _as_list(named["bias"], 1) if "bias" in named else None
        kwargs = {"biases": biases, "return_product": return_product, "padded": named.get("padded", False)}
        operands = (lefts, rights, none, none, reduce_op, dim, group)
        return Call(_ops_of.fused_scaled_matmuls_reduce_scatter.default, operands, kwargs, _scattered_or_product)
    if len(lefts) == 1 and not return_product:
        operands = (lefts[0], rights[0], reduce_op, dim, group)
        return Call(_ops_of.fused_matmul_reduce_scatter.default, operands, {}, lambda _: ())
    operands = (lefts, rights, reduce_op, dim, group)
    kwargs = {"return_product": return_product}
    return Call(_ops_of.fused_matmuls_reduce_scatter.default, operands, kwargs, _scattered_or_product)


def _scaled_options(count: int, others: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
    """Of the op of so many scaled products: the last arguments of a node."""
    bias, result_scale, dtype, fast = others
    return {
        "biases": _as_list(bias, count),
        "result_scales": _as_list(result_scale, count),
        "out_dtype": dtype,
        "use_fast_accum": all(_as_list(fast, count)),
        "return_product": named.get("return_product", False),
    }


def _scaled_matmul_reduce_scatter(args: Sequence[Any], named: dict[str, Any]) -> Call:
    a, b, a_scale, b_scale, reduce_op, dim, _, group, _, *others = args
    operands = (_as_list(a, 1), _as_list(b, 1), _as_list(a_scale, 1), _as_list(b_scale, 1), reduce_op, dim, group)
    kwargs = _scaled_options(len(operands[0]), others, named) | {"padded": named.get("padded", False)}
    return Call(_ops_of.fused_scaled_matmuls_reduce_scatter.default, operands, kwargs, _scattered_or_product)


def _matmul_all_reduce(args: Sequence[Any], named: dict[str, Any]) -> Call:
    a, b, reduce_op, group = args
    lefts, rights = _as_list(a, 1), _as_list(b, 1)
    return_product = named.get("return_product", False)
    if "bias" in named:  # each rank adds its own before the sum, as the op with scales does
        none = [None] * len(lefts)
        kwargs = {"biases": _as_list(named["bias"], 1), "return_product": return_product}
        operands = (lefts, rights, none, none, reduce_op, group)
        return Call(_ops_of.fused_scaled_matmuls_all_reduce.default, operands, kwargs, _scattered_or_product)
    if len(lefts) == 1 and not return_product:
        operands = (lefts[0], rights[0], reduce_op, group)
        return Call(_ops_of.fused_matmul_all_reduce.default, operands, {}, lambda _: ())
    kwargs = {"return_product": return_product}
    operands = (lefts, rights, reduce_op, group)
    return Call(_ops_of.fused_matmuls_all_reduce.default, operands, kwargs, _scattered_or_product)


def _scaled_matmul_all_reduce(args: Sequence[Any], named: dict[str, Any]) -> Call:
    a, b, a_scale, b_scale, reduce_op, group, *others = args
    operands = (_as_list(a, 1), _as_list(b, 1), _as_list(a_scale, 1), _as_list(b_scale, 1), reduce_op, group)
    kwargs = _scaled_options(len(operands[0]), others, named)
    return Call(_ops_of.fused_scaled_matmuls_all_reduce.default, operands, kwargs, _scattered_or_product)


def _low_contention_all_gather(args: Sequence[Any], named: dict[str, Any]) -> Call:
    shard, group = args
    return Call(_ops_of.low_contention_all_gather.default, (shard, 0, group), {}, lambda _: ())


def _low_contention_reduce_scatter(args: Sequence[Any], named: dict[str, Any]) -> Call:
    whole, reduce_op, group = args
    return Call(_ops_of.low_contention_reduce_scatter.default, (whole, reduce_op, 0, group), {}, lambda _: ())


#: A node's op to what makes the call of its arguments, in place and by name.
CALLS: dict[str, Callable[[Sequence[Any], dict[str, Any]], Call]] = {
    "symm_mem.fused_all_gather_matmul.default": _all_gather_matmul,
    "symm_mem.fused_all_gather_scaled_matmul.default": _all_gather_scaled_matmul,
    "symm_mem.fused_matmul_reduce_scatter.default": _matmul_reduce_scatter,
    "symm_mem.fused_scaled_matmul_reduce_scatter.default": _scaled_matmul_reduce_scatter,
    "symm_mem._low_contention_all_gather.default": _low_contention_all_gather,
    "symm_mem._low_contention_reduce_scatter.default": _low_contention_reduce_scatter,
    "tandem.fused_matmul_all_reduce.default": _matmul_all_reduce,
    "tandem.fused_scaled_matmul_all_reduce.default": _scaled_matmul_all_reduce,
}
