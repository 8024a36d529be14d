"""Gradients. The gradient of a gather with products is products with a reduce-scatter, and the other way round.

The loss is the sum of the ranks' losses. So the gradient of an all-reduce is an all-reduce of the ranks' gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tandem._errors import Error, ErrorCode

from . import _ops

_ops_of = getattr(torch.ops, _ops.NAMESPACE)


def register(name: str, backward: Any, setup_context: Any) -> None:
    torch.library.register_autograd(
        f"{_ops.NAMESPACE}::{name}", backward, setup_context=setup_context, lib=_ops.library
    )


def _rows(tensor: torch.Tensor, outermost: int) -> torch.Tensor:
    """The tensor as a matrix. Rows are in the order in which the memory of a gathered tensor has them."""
    if outermost != tensor.dim() - 1:
        tensor = tensor.movedim(outermost, 0)
    return tensor.reshape(-1, tensor.shape[-1])


def _weight_gradient(left: torch.Tensor, grad: torch.Tensor, outermost: int) -> torch.Tensor:
    return _rows(left, outermost).t() @ _rows(grad, outermost)


# ---- fused_all_gather_matmul ----


def gather_setup(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    a, bs, ctx.gather_dim, ctx.group_name = inputs
    ctx.set_materialize_grads(False)
    ctx.has_whole = keyword_only_inputs["return_A"]
    ctx.save_for_backward(output[0] if ctx.has_whole else a, *bs)


def gather_backward(ctx: Any, grad_whole: Any, grads: Sequence[Any]) -> tuple[Any, ...]:
    saved, *bs = ctx.saved_tensors
    dim, group = ctx.gather_dim, ctx.group_name
    needs_a, needs_bs = ctx.needs_input_grad[:2]
    known = [i for i, grad in enumerate(grads) if grad is not None]
    grad_a = None
    if needs_a and known:
        rights = [bs[i].t() for i in known]
        grad_a, _ = _ops_of.fused_matmuls_reduce_scatter([grads[i] for i in known], rights, "sum", dim, group)
    if needs_a and grad_whole is not None:
        through_whole = _ops_of.reduce_scatter(grad_whole, "sum", dim, group)
        grad_a = through_whole if grad_a is None else grad_a + through_whole
    grad_bs: list[Any] = [None] * len(bs)
    wanted = [i for i in known if needs_bs[i]]
    if wanted:
        whole = saved if ctx.has_whole else _ops_of.all_gather(saved, dim, group)
        for i in wanted:
            grad_bs[i] = _weight_gradient(whole, grads[i], dim)
    return grad_a, grad_bs, None, None


register("fused_all_gather_matmul", gather_backward, gather_setup)


# ---- fused_matmul_reduce_scatter and its form for several products ----


def _scatter_gradients(
    ctx: Any, grad: torch.Tensor, lefts: Sequence[Any], rights: Sequence[Any], needs: Sequence[Sequence[bool]]
) -> tuple[list[Any], list[Any]]:
    dim, group = ctx.scatter_dim, ctx.group_name
    if ctx.reduce_op == "avg":
        grad = grad / ctx.world
    needs_lefts, needs_rights = needs
    grad_lefts: list[Any] = [None] * len(lefts)
    grad_rights: list[Any] = [None] * len(rights)
    wanted = [i for i, need in enumerate(needs_lefts) if need]
    whole = None
    if wanted:
        matrices = [rights[i].t() for i in wanted]
        whole, products = _ops_of.fused_all_gather_matmul(grad, matrices, dim, group, return_A=any(needs_rights))
        for i, product in zip(wanted, products):
            grad_lefts[i] = product
    if any(needs_rights):
        if whole is None:
            whole = _ops_of.all_gather(grad, dim, group)
        for i, need in enumerate(needs_rights):
            if need:
                grad_rights[i] = _weight_gradient(lefts[i], whole, dim)
    return grad_lefts, grad_rights


def scatter_setup(ctx: Any, inputs: Any, output: Any) -> None:
    a, b, ctx.reduce_op, ctx.scatter_dim, ctx.group_name = inputs
    ctx.world = _ops._groups.size_of(ctx.group_name)
    ctx.save_for_backward(a, b)


def scatter_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    a, b = ctx.saved_tensors
    needs_a, needs_b = ctx.needs_input_grad[:2]
    (grad_a,), (grad_b,) = _scatter_gradients(ctx, grad, [a], [b], ([needs_a], [needs_b]))
    return grad_a, grad_b, None, None, None


register("fused_matmul_reduce_scatter", scatter_backward, scatter_setup)


def _sum_scatter_setup(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    lefts, rights, ctx.reduce_op, ctx.scatter_dim, ctx.group_name = inputs
    ctx.set_materialize_grads(False)
    ctx.world = _ops._groups.size_of(ctx.group_name)
    ctx.num_products = len(lefts)
    ctx.save_for_backward(*lefts, *rights)


def _add(total: list[Any], idx: int, term: torch.Tensor) -> None:
    total[idx] = term if total[idx] is None else total[idx] + term


def _add_own_products(ctx: Any, grad: Any, tensors: Any, grads: tuple[list[Any], list[Any]]) -> None:
    """Adds the gradients of a rank's operands; `grad` is that of its own sum of products."""
    (lefts, rights), (grad_lefts, grad_rights) = tensors, grads
    needs_lefts, needs_rights = ctx.needs_input_grad[:2]
    for i, (left, right) in enumerate(zip(lefts, rights, strict=True)):
        if needs_lefts[i]:
            _add(grad_lefts, i, grad @ right.t())
        if needs_rights[i]:
            _add(grad_rights, i, _weight_gradient(left, grad, 0))


def _sum_scatter_backward(ctx: Any, grad: Any, grad_product: Any) -> tuple[Any, ...]:
    lefts, rights = ctx.saved_tensors[: ctx.num_products], ctx.saved_tensors[ctx.num_products :]
    needs_lefts, needs_rights = ctx.needs_input_grad[:2]
    grad_lefts: list[Any] = [None] * len(lefts)
    grad_rights: list[Any] = [None] * len(rights)
    if grad is not None:
        grad_lefts, grad_rights = _scatter_gradients(ctx, grad, lefts, rights, (needs_lefts, needs_rights))
    if grad_product is not None:
        _add_own_products(ctx, grad_product, (lefts, rights), (grad_lefts, grad_rights))
    return grad_lefts, grad_rights, None, None, None


register("fused_matmuls_reduce_scatter", _sum_scatter_backward, _sum_scatter_setup)


# ---- fused_matmul_all_reduce and its form for several products ----


def _with_bias_gradient(ctx: Any, grad: Any, grads: Sequence[Any]) -> tuple[Any, ...]:
    """The gradients of the operands, and those of the other arguments. Calls may leave out the last, the bias."""
    needs = ctx.needs_input_grad[4:]
    if not needs:
        return *grads, None, None
    needs_bias = grad is not None and needs[0]
    return *grads, None, None, grad.reshape(-1, grad.shape[-1]).sum(0) if needs_bias else None


def _sum_reduce_setup(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    lefts, rights, reduce_op, ctx.group_name, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.divisor = _ops._groups.size_of(ctx.group_name) if reduce_op == "avg" else 1
    ctx.num_products = len(lefts)
    ctx.save_for_backward(*lefts, *rights)


def _sum_reduce_backward(ctx: Any, grad: Any, grad_product: Any) -> tuple[Any, ...]:
    tensors = ctx.saved_tensors[: ctx.num_products], ctx.saved_tensors[ctx.num_products :]
    grads: tuple[list[Any], list[Any]] = ([None] * ctx.num_products, [None] * ctx.num_products)
    if grad is not None and (any(ctx.needs_input_grad[0]) or any(ctx.needs_input_grad[1])):
        share = grad / ctx.divisor if ctx.divisor != 1 else grad
        whole = _ops_of.all_reduce(share, "sum", ctx.group_name)
        _add_own_products(ctx, whole, tensors, grads)
    if grad_product is not None:
        _add_own_products(ctx, grad_product, tensors, grads)
    return _with_bias_gradient(ctx, grad, grads)


register("fused_matmuls_all_reduce", _sum_reduce_backward, _sum_reduce_setup)


def _reduce_setup(ctx: Any, inputs: Any, output: Any) -> None:
    a, b, reduce_op, group_name, bias = inputs
    ctx.divisor = _ops._groups.size_of(group_name) if reduce_op == "avg" else 1
    ctx.group_name = group_name
    ctx.save_for_backward(a, b)


def _reduce_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    a, b = ctx.saved_tensors
    needs_a, needs_b = ctx.needs_input_grad[:2]
    grad_a = grad_b = None
    if needs_a or needs_b:
        whole = _ops_of.all_reduce(grad / ctx.divisor if ctx.divisor != 1 else grad, "sum", ctx.group_name)
        grad_a = whole @ b.t() if needs_a else None
        grad_b = _weight_gradient(a, whole, 0) if needs_b else None
    return _with_bias_gradient(ctx, grad, (grad_a, grad_b))


register("fused_matmul_all_reduce", _reduce_backward, _reduce_setup)


# ---- the collectives ----


def _collective_setup(ctx: Any, inputs: Any, output: Any) -> None:
    *_, ctx.dim, ctx.group_name = inputs  # of an all-reduce, which has no dim, its op
    ctx.divisor = _ops._groups.size_of(ctx.group_name) if inputs[1] == "avg" else 1


def _all_gather_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    return _ops_of.reduce_scatter(grad, "sum", ctx.dim, ctx.group_name), None, None


def _reduce_scatter_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    share = grad / ctx.divisor if ctx.divisor != 1 else grad
    return _ops_of.all_gather(share, ctx.dim, ctx.group_name), None, None, None


def _all_reduce_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    share = grad / ctx.divisor if ctx.divisor != 1 else grad
    return _ops_of.all_reduce(share, "sum", ctx.group_name), None, None


register("all_reduce", _all_reduce_backward, _collective_setup)
register("all_gather", _all_gather_backward, _collective_setup)
register("reduce_scatter", _reduce_scatter_backward, _collective_setup)


# ---- ops without gradients say so ----

# Those on fp8 tensors, and what rounds its operands to fp8 and has gradients: see _quantized_ops.py.
_WITH_GRADIENT = {
    "fused_all_gather_scaled_matmul": "fused_all_gather_quantized_matmul",
    "fused_all_gathers_scaled_matmul": "fused_all_gather_quantized_matmul",
    "fused_scaled_matmul_reduce_scatter": "fused_quantized_matmul_reduce_scatter",
    "fused_scaled_matmuls_reduce_scatter": "fused_quantized_matmul_reduce_scatter",
}


def _without_gradient(name: str) -> None:
    def backward(ctx: Any, *grads: Any) -> None:
        text = f"torch.ops.{_ops.NAMESPACE}.{name} has no gradient"
        instead = _WITH_GRADIENT.get(name)
        raise Error(ErrorCode.UNSUPPORTED, f"{text}: call {instead} with bf16, f16 or f32 operands" if instead else text)

    register(name, backward, lambda ctx, inputs, output: None)


for _name in ("fused_all_gather_addmm", "fused_scaled_matmuls_all_reduce", *_WITH_GRADIENT, "async_input_mm", "_async_input_mm"):
    _without_gradient(_name)
