"""What the ops check, and the tensors that they return. An op and its fake implementation share these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from tandem import _arrays
from tandem._errors import Error, ErrorCode

PRODUCT_TYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_DIMS = 8
F8_TYPES = (torch.float8_e4m3fn, torch.float8_e5m2)


def refuse(text: str) -> NoReturn:
    raise Error(ErrorCode.INVALID_ARGUMENT, text)


def check_tensors(tensors: dict[str, Any]) -> None:
    """Whether the library can take them, by their names: tensors, lists of them, None. The first's device counts."""
    device = None
    for name, given in tensors.items():
        several = isinstance(given, (list, tuple))
        for i, tensor in enumerate(given if several else [given]):
            if tensor is not None:
                device = tensor.device if device is None else device
                _check_tensor(f"{name}[{i}]" if several and len(given) > 1 else name, tensor, device)


def _check_tensor(name: str, tensor: torch.Tensor, device: torch.device) -> None:
    if tensor.layout != torch.strided:
        refuse(f"{name} is of layout {tensor.layout}, need torch.strided: pass to_dense()")
    if tensor.dim() > MOST_DIMS:
        refuse(f"{name} has {tensor.dim()} dims, may have {MOST_DIMS}")
    if tensor.is_quantized:
        refuse(f"{name} is quantized, need values as they are: pass dequantize()")
    if str(tensor.dtype).removeprefix("torch.") not in _arrays.NAMES:
        refuse(f"{name} is of type {tensor.dtype}, need one of {', '.join(_arrays.NAMES)}")
    if tensor.device != device:
        refuse(f"{name} is on {tensor.device}, need {device}, the device of the first tensor")


def check_dim(name: str, dim: int, tensor: torch.Tensor) -> None:
    """Whether `tensor` has such a dim. Negative numbers are none."""
    if tensor.dim() < 1 or not 0 <= dim < tensor.dim():
        refuse(f"{name} is {dim}, need 0 to {tensor.dim() - 1}")


def dim_of(name: str, dim: int, tensor: torch.Tensor) -> int:
    """The dim of `tensor`, from 0 on. Negative numbers count from the end."""
    if not -tensor.dim() <= dim < tensor.dim():
        most = f"{-tensor.dim()} to {tensor.dim() - 1}" if tensor.dim() > 0 else "a tensor that has dims"
        refuse(f"{name} is {dim}, need {most}")
    return dim % tensor.dim()


def _check_left(name: str, a: torch.Tensor) -> None:
    if a.dim() < 2:
        refuse(f"{name} has sizes {list(a.shape)}, need at least 2 dims")


def _check_right(name: str, b: torch.Tensor, rows: int) -> None:
    if b.dim() != 2 or b.shape[0] != rows:
        refuse(f"{name} has sizes {list(b.shape)}, need [{rows}, n]")


def check_types(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> None:
    """Whether all are of one type that products take."""
    for name, tensor in zip(names, tensors):
        if tensor.dtype not in PRODUCT_TYPES:
            refuse(f"{name} is of type {tensor.dtype}, need float32, bfloat16 or float16")
        if tensor.dtype != tensors[0].dtype:
            refuse(f"{name} is of type {tensor.dtype} and {names[0]} of {tensors[0].dtype}, need the same")


def check_f8(name: str, tensor: torch.Tensor) -> None:
    if tensor.dtype not in F8_TYPES:
        refuse(f"{name} is of type {tensor.dtype}, need float8_e4m3fn or float8_e5m2")


def check_f8_type(name: str, dtype: torch.dtype) -> None:
    if dtype not in F8_TYPES:
        refuse(f"{name} is {dtype}, need torch.float8_e4m3fn or torch.float8_e5m2")


def check_reduce_op(reduce_op: str) -> None:
    if reduce_op not in ("sum", "avg"):
        refuse(f"reduce_op is '{reduce_op}', need sum or avg")


def check_length(name: str, values: Sequence[object], of: str, bs: Sequence[torch.Tensor]) -> None:
    if len(values) != len(bs):
        refuse(f"{name} has {len(values)} elements, need {len(bs)}, one for each of {of}")


def check_biases(name: str, biases: Sequence[torch.Tensor | None] | None, of: str, bs: Sequence[torch.Tensor]) -> None:
    """Whether there is a row, or None, for each b."""
    if biases is None:
        return
    check_length(name, biases, of, bs)
    for i, (bias, b) in enumerate(zip(biases, bs, strict=True)):
        if bias is not None:
            check_bias(f"{name}[{i}]", bias, b)


def check_bias(name: str, bias: torch.Tensor, b: torch.Tensor) -> None:
    """Whether it is a row of what b multiplies to."""
    if list(bias.shape) != [b.shape[1]]:
        refuse(f"{name} has sizes {list(bias.shape)}, need [{b.shape[1]}]")


def check_beside(name: str, shard: torch.Tensor, a: torch.Tensor) -> None:
    """Whether the schedule that gathers `a` can gather `shard` too."""
    if list(shard.shape[:-1]) != list(a.shape[:-1]):
        refuse(f"{name} has sizes {list(shard.shape)}, need those of A, {list(a.shape)}, but for the last")


def gathered_sizes(shape: Sequence[int], dim: int, world: int, gather_size: int | None = None) -> list[int]:
    """The sizes over all ranks. With gather_size the last ranks' shards have padding, which is left out."""
    sizes = list(shape)
    whole = sizes[dim] * world
    sizes[dim] = whole if gather_size is None else gather_size
    if sizes[dim] < 0 or -(-sizes[dim] // world) != shape[dim]:
        least = max(0, whole - world + 1)
        refuse(f"gather_size is {gather_size}, need {least} to {whole}: {world} shards of {shape[dim]}")
    return sizes


def own_rows(size: int, world: int, rank: int) -> int:
    """How many of `size` rows the rank has by the shard rule."""
    stride = -(-size // world)
    return max(0, min(size - rank * stride, stride))


def check_own_rows(name: str, size: int, what: str, rows: int, world: int, rank: int) -> None:
    """Whether a rank that has so many rows has its shard of `size`."""
    if size < 0 or own_rows(size, world, rank) != rows:
        need = f"{own_rows(size, world, rank)} on rank {rank} of {world}" if size >= 0 else "no size below 0"
        refuse(f"{name} is {size} and {what} has size {rows}, need {need}")


def scattered_sizes(shape: Sequence[int], dim: int, world: int, padded: bool = False) -> list[int]:
    """A rank's sizes; with `padded` those of the first rank, where ranks have more or fewer rows."""
    sizes = list(shape)
    if sizes[dim] % world != 0 and not padded:
        refuse(f"dim {dim} of the product has size {sizes[dim]}, need a multiple of the group's size {world}")
    sizes[dim] = -(-sizes[dim] // world)
    return sizes


def empty_with_outermost(like: torch.Tensor, sizes: Sequence[int], dim: int, dtype: torch.dtype) -> torch.Tensor:
    """A new tensor whose dim `dim` is the outermost in memory; the last dim stays the innermost."""
    if dim == len(sizes) - 1:
        return like.new_empty(list(sizes), dtype=dtype)
    order = [sizes[dim], *sizes[:dim], *sizes[dim + 1 :]]
    return like.new_empty(order, dtype=dtype).movedim(0, dim)


def check_gather(
    a: torch.Tensor, bs: Sequence[torch.Tensor], gather_dim: int, world: int, gather_size: int | None = None
) -> None:
    """Whether all_gather(a) @ b has meaning for every b."""
    _check_left("A", a)
    check_dim("gather_dim", gather_dim, a)
    if not bs:
        refuse("Bs is empty, need at least one matrix")
    for i, b in enumerate(bs):
        _check_right(f"Bs[{i}]", b, gathered_sizes(a.shape, gather_dim, world, gather_size)[-1])


def gather_outputs(
    a: torch.Tensor,
    bs: Sequence[torch.Tensor],
    gather_dim: int,
    world: int,
    dtypes: Sequence[torch.dtype],
    return_a: bool,
    gather_size: int | None = None,
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    """New tensors: all of a, and a product for each b."""
    whole = gathered_sizes(a.shape, gather_dim, world, gather_size)
    gathered = empty_with_outermost(a, whole, gather_dim, a.dtype) if return_a else None
    rows = list(a.shape[:-1]) if gather_dim == a.dim() - 1 else whole[:-1]
    outs = []
    for b, dtype in zip(bs, dtypes):
        outs.append(empty_with_outermost(a, [*rows, b.shape[1]], gather_dim, dtype))
    return gathered, outs


def check_reduction(
    names: tuple[str, str], lefts: Sequence[torch.Tensor], rights: Sequence[torch.Tensor], op: str
) -> None:
    """Whether the products have meaning and can be added."""
    if not lefts or len(lefts) != len(rights):
        refuse(f"got {len(lefts)} left and {len(rights)} right matrices, need as many, and one at least")
    for i, (a, b) in enumerate(zip(lefts, rights)):
        left, right = (names[0], names[1]) if len(lefts) == 1 else (f"{names[0]}[{i}]", f"{names[1]}[{i}]")
        _check_left(left, a)
        _check_right(right, b, a.shape[-1])
        got = [*a.shape[:-1], b.shape[1]]
        want = [*lefts[0].shape[:-1], rights[0].shape[1]]
        if len(got) != len(want) or any(g != w for g, w in zip(got, want)):
            refuse(f"product {i} has sizes {got} and product 0 {want}, need the same")
    check_reduce_op(op)


def unflattened(tensor: torch.Tensor, name: str, leading: Sequence[int]) -> torch.Tensor:
    """The tensor with these sizes in place of all but its last dim."""
    rows = math.prod(leading)
    if math.prod(tensor.shape[:-1]) != rows:
        refuse(f"{name} has sizes {list(tensor.shape)}, need {rows} rows, those of output_shape")
    return tensor.reshape([*leading, tensor.shape[-1]])
