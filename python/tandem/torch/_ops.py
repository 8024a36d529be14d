"""The ops that torch.ops.tandem has: schemas, implementations and fake implementations.

An implementation allocates its results by PyTorch, so that PyTorch's allocator and graphs own them. The fake one
allocates the same tensors and stops there.
"""

from __future__ import annotations

import collections
import contextlib
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

import tandem
from tandem._errors import Error

from . import _groups, _shapes

NAMESPACE = "tandem"


class _Library(torch.library.Library):
    """The ops. Where nothing needs a gradient, an op skips PyTorch's wrapper, which costs as much as the op itself."""

    def __init__(self) -> None:
        super().__init__(NAMESPACE, "DEF")
        self.implementations: dict[str, Callable[..., Any]] = {}

    def impl(self, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> Any:
        if dispatch_key == "Autograd":
            fn = _without_gradients(self.implementations[str(op_name).rpartition("::")[2]], fn)
        return super().impl(op_name, fn, dispatch_key, **options)


def _without_gradients(real: Callable[..., Any], wrapped: Callable[..., Any]) -> Callable[..., Any]:
    """`wrapped`, or `real` for plain tensors without gradients. Fake tensors and modes need PyTorch's dispatcher."""
    keys = torch._C.DispatchKey
    backends = (keys.CPU, keys.CUDA)
    below = torch._C._after_ADInplaceOrView_keyset

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        needs_gradient = torch.is_grad_enabled() and torch._C._any_requires_grad(*args)
        backend = (keyset & below).highestPriorityTypeId()
        if needs_gradient or args[0] is None or backend not in backends:
            return wrapped(keyset, *args, **kwargs)
        with torch._C._AutoDispatchBelowAutograd():
            return real(*args, **kwargs)

    return kernel


library = _Library()
reports: collections.deque[tandem.OpReport] = collections.deque(maxlen=64)  # of the last fused ops
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
MaybeTensors = Sequence[torch.Tensor | None]


def _define(schema: str, real: Callable[..., Any], fake: Callable[..., Any]) -> None:
    name = schema.partition("(")[0]
    library.define(schema, tags=_TAGS)
    library.implementations[name] = real
    library.impl(name, real, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=library)


def _plain(tensor: Any) -> Any:
    """What DLPack can export: no gradient, no lazy conjugation or negation."""
    if isinstance(tensor, torch.Tensor):
        is_plain = not (tensor.requires_grad or tensor.is_neg() or tensor.is_conj())
        return tensor if is_plain else tensor.detach().resolve_conj().resolve_neg()
    return None if tensor is None else [_plain(each) for each in tensor]


class _group_for:
    """The group of an op on the device of its first tensor. Checks that raise in here refuse the call on all ranks."""

    __slots__ = ("_group",)

    def __init__(self, group_name: str, first: Any) -> None:
        if not isinstance(first, torch.Tensor):
            raise TypeError(f"the first argument: got a {type(first).__qualname__}, need a tensor")
        self._group = _groups.group_of(group_name, first.device)

    def __enter__(self) -> tandem.Group:
        return self._group

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, Error):
            with contextlib.suppress(Error):
                self._group.refuse_call(error.text)


_tensor_key = operator.attrgetter("shape", "dtype", "device", "layout")


def _key_of(argument: Any) -> Any:
    """What checks look at, and what results have of an argument."""
    if type(argument) is torch.Tensor:
        return _tensor_key(argument)
    if isinstance(argument, (list, tuple)):
        return tuple([_key_of(each) for each in argument])
    return _tensor_key(argument) if isinstance(argument, torch.Tensor) else argument


def _form_of(results: Any) -> Any:
    """What makes new results like these."""
    if isinstance(results, torch.Tensor):
        return tuple(results.shape), results.stride(), results.dtype, results.device
    return None if results is None else [*map(_form_of, results)]


def _new(form: Any) -> Any:
    if isinstance(form, tuple):
        sizes, strides, dtype, device = form
        return torch.empty_strided(sizes, strides, dtype=dtype, device=device)
    return None if form is None else [*map(_new, form)]


def _checked_once(make_results: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a call's results. A call like an earlier one, but for the values in its tensors, is not checked again."""
    forms: dict[Any, Any] = {}

    def results(*args: Any) -> Any:
        key = tuple([_key_of(each) for each in args])
        form = forms.get(key)
        if form is not None:
            return _new(form)
        made = make_results(*args)
        if len(forms) >= 1024:
            forms.clear()
        forms[key] = _form_of(made)
        return made

    return results


# ---- all-gather, then products ----


def _some(values: MaybeTensors | None) -> MaybeTensors | None:
    """The list, if anything is in it."""
    return values if values is not None and any(value is not None for value in values) else None


def _own(shard: torch.Tensor, dim: int, group: tandem.Group, gather_size: int | None) -> torch.Tensor:
    """What of a shard is this rank's, and no padding."""
    return shard if gather_size is None else shard.narrow(dim, 0, _shapes.own_rows(gather_size, group.size, group.rank))


def _gather_results(
    a: torch.Tensor,
    bs: Tensors,
    gather_dim: int,
    world: int,
    return_a: bool,
    biases: MaybeTensors | None,
    gather_size: int | None = None,
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    _shapes.check_tensors({"A": a, "Bs": bs, "biases": biases or ()})
    _shapes.check_gather(a, bs, gather_dim, world, gather_size)
    _shapes.check_types(["A", *(f"Bs[{i}]" for i in range(len(bs)))], [a, *bs])
    _shapes.check_biases("biases", biases, "Bs", bs)
    return _shapes.gather_outputs(a, bs, gather_dim, world, [b.dtype for b in bs], return_a, gather_size)


_known_gather_results = _checked_once(_gather_results)


def _all_gather_addmm(
    a: torch.Tensor,
    bs: Tensors,
    biases: MaybeTensors | None,
    gather_dim: int,
    group_name: str,
    return_a: bool,
    gather_size: int | None = None,
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    with _group_for(group_name, a) as group:
        gathered, outs = _known_gather_results(a, bs, gather_dim, group.size, return_a, biases, gather_size)
    added = _some(biases)
    if added is not None:  # where one product has a bias, all have: zeros do nothing
        added = [b.new_zeros(b.shape[1]) if bias is None else bias for b, bias in zip(bs, added, strict=True)]
    done = tandem.fused_all_gather_matmul(
        _plain(_own(a, gather_dim, group, gather_size)),
        _plain(bs),
        gather_dim,
        gather_size,
        group=group,
        bias=_plain(added),
        out=outs,
        gathered=False if gathered is None else gathered,
    )
    reports.append(done.report)
    return gathered, outs


_define(
    "fused_all_gather_matmul("
    "Tensor A, Tensor[] Bs, int gather_dim, str group_name, *, bool return_A = True) -> (Tensor?, Tensor[])",
    lambda a, bs, dim, group, *, return_A=True: _all_gather_addmm(a, bs, None, dim, group, return_A),
    lambda a, bs, dim, group, *, return_A=True: _gather_results(a, bs, dim, _groups.size_of(group), return_A, None),
)
_define(
    "fused_all_gather_addmm("
    "Tensor A, Tensor[] Bs, Tensor?[] biases, int gather_dim, str group_name, *, bool return_A = True, "
    "int? gather_size = None) -> (Tensor?, Tensor[])",
    lambda a, bs, biases, dim, group, *, return_A=True, gather_size=None: _all_gather_addmm(
        a, bs, biases, dim, group, return_A, gather_size
    ),
    lambda a, bs, biases, dim, group, *, return_A=True, gather_size=None: _gather_results(
        a, bs, dim, _groups.size_of(group), return_A, biases, gather_size
    ),
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
    a: torch.Tensor,
    bs: Tensors,
    gather_dim: int,
    world: int,
    return_a: bool,
    also_gather: Tensors,
    lists: dict[str, Sequence[Any]],
    gather_size: int | None = None,
) -> tuple[torch.Tensor | None, list[torch.Tensor], list[torch.Tensor]]:
    """All of A, the products, and what is gathered beside."""
    _shapes.check_tensors({"A": a, "Bs": bs, "also_gather": also_gather})
    _shapes.check_gather(a, bs, gather_dim, world, gather_size)
    _shapes.check_f8("A", a)
    for i, b in enumerate(bs):
        _shapes.check_f8(f"Bs[{i}]", b)
    for name, values in lists.items():
        _shapes.check_length(name, values, "Bs", bs)
    _shapes.check_biases("biases", lists["biases"], "Bs", bs)
    types = _types_of(lists["out_dtypes"], bs)
    gathered, outs = _shapes.gather_outputs(a, bs, gather_dim, world, types, return_a, gather_size)
    beside = []
    for i, shard in enumerate(also_gather):
        _shapes.check_beside(f"also_gather[{i}]", shard, a)
        sizes = _shapes.gathered_sizes(shard.shape, gather_dim, world, gather_size)
        beside.append(_shapes.empty_with_outermost(shard, sizes, gather_dim, shard.dtype))
    return gathered, outs, beside


def _lists(b_scales: Any, biases: Any, result_scales: Any, out_dtypes: Any, use_fast_accum: Any) -> dict[str, Any]:
    """What has one element for each product, by the names of the op's arguments."""
    return {
        "B_scales": b_scales,
        "biases": biases,
        "result_scales": result_scales,
        "out_dtypes": out_dtypes,
        "use_fast_accum": use_fast_accum,
    }


def _all_gathers_scaled_matmul(
    a: torch.Tensor,
    bs: Tensors,
    a_scale: torch.Tensor,
    b_scales: Tensors,
    gather_dim: int,
    group_name: str,
    biases: MaybeTensors,
    result_scales: MaybeTensors,
    out_dtypes: Sequence[Any],
    use_fast_accum: Sequence[bool],
    also_gather: Tensors,
    *,
    return_A: bool = True,
    scale_mode: str = "detect",
    gather_size: int | None = None,
) -> tuple[torch.Tensor | None, list[torch.Tensor], list[torch.Tensor]]:
    lists = _lists(b_scales, biases, result_scales, out_dtypes, use_fast_accum)
    others = {"A_scale": a_scale, "B_scales": b_scales, "biases": biases, "result_scales": result_scales}
    with _group_for(group_name, a) as group:
        _shapes.check_tensors({"A": a} | others)
        gathered, outs, beside = _scaled_gather_results(
            a, bs, gather_dim, group.size, return_A, also_gather, lists, gather_size
        )
    if scale_mode.endswith("_sharded"):
        a_scale = _own(a_scale, gather_dim, group, gather_size)
    done = tandem.fused_all_gather_scaled_matmul(
        _plain(_own(a, gather_dim, group, gather_size)),
        _plain(bs),
        _plain(a_scale),
        _plain(b_scales),
        gather_dim,
        gather_size,
        group=group,
        scale_mode=scale_mode,
        bias=_plain(_some(biases)),
        result_scale=_plain(_some(result_scales)),
        fast_accum=all(use_fast_accum),
        out=outs,
        gathered=False if gathered is None else gathered,
        also_gather=[_plain(_own(shard, gather_dim, group, gather_size)) for shard in also_gather] or None,
        also_gathered=beside if also_gather else None,
    )
    reports.append(done.report)
    return gathered, outs, beside


def _all_gathers_scaled_matmul_fake(
    a: torch.Tensor,
    bs: Tensors,
    a_scale: torch.Tensor,
    b_scales: Tensors,
    gather_dim: int,
    group_name: str,
    *lists_and_shards: Any,
    return_A: bool = True,
    scale_mode: str = "detect",
    gather_size: int | None = None,
) -> tuple[torch.Tensor | None, list[torch.Tensor], list[torch.Tensor]]:
    *lists, also_gather = lists_and_shards
    world = _groups.size_of(group_name)
    named = _lists(b_scales, *lists)
    return _scaled_gather_results(a, bs, gather_dim, world, return_A, also_gather, named, gather_size)


_SCALED_GATHER = (
    "Tensor A, Tensor[] Bs, Tensor A_scale, Tensor[] B_scales, int gather_dim, str group_name, "
    "Tensor?[] biases, Tensor?[] result_scales, ScalarType?[] out_dtypes, bool[] use_fast_accum"
)
_define(
    f"fused_all_gather_scaled_matmul({_SCALED_GATHER}) -> (Tensor, Tensor[])",
    lambda *args: _all_gathers_scaled_matmul(*args, [])[:2],
    lambda *args: _all_gathers_scaled_matmul_fake(*args, [])[:2],
)
_define(
    f"fused_all_gathers_scaled_matmul({_SCALED_GATHER}, Tensor[] also_gather, *, bool return_A = True, "
    "str scale_mode = 'detect', int? gather_size = None) -> (Tensor?, Tensor[], Tensor[])",
    _all_gathers_scaled_matmul,
    _all_gathers_scaled_matmul_fake,
)


# ---- products, then reduce-scatter ----


def _first(lefts: Tensors) -> torch.Tensor:
    """The first of the left matrices. A call without any is refused."""
    if not lefts:
        _shapes.refuse("As is empty, need at least one matrix")
    return lefts[0]


def _reduction_results(
    names: tuple[str, str],
    lefts: Tensors,
    rights: Tensors,
    reduce_op: str,
    scatter_dim: int | None,
    world: int,
    return_product: bool,
    dtype: torch.dtype,
    padded: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """This rank's shard of the sum, or all of it if no dim is scattered; and its own sum of products."""
    _shapes.check_tensors({names[0]: lefts, names[1]: rights})
    _shapes.check_reduction(names, lefts, rights, reduce_op)
    sizes = [*lefts[0].shape[:-1], rights[0].shape[1]]
    own_sizes = sizes
    if scatter_dim is not None:
        _shapes.check_dim("scatter_dim", scatter_dim, lefts[0])
        own_sizes = _shapes.scattered_sizes(sizes, scatter_dim, world, padded)
    out = lefts[0].new_empty(own_sizes, dtype=dtype)
    return out, lefts[0].new_empty(sizes, dtype=dtype) if return_product else None


def _plain_reduction_results(
    names: tuple[str, str],
    lefts: Tensors,
    rights: Tensors,
    reduce_op: str,
    scatter_dim: int | None,
    world: int,
    return_product: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    dtype = _first(lefts).dtype
    results = _reduction_results(names, lefts, rights, reduce_op, scatter_dim, world, return_product, dtype)
    _shapes.check_types([names[0]] * len(lefts) + [names[1]] * len(rights), [*lefts, *rights])
    return results


_known_plain_reduction_results = _checked_once(_plain_reduction_results)


def _products_reduce_scatter(
    names: tuple[str, str],
    lefts: Tensors,
    rights: Tensors,
    reduce_op: str,
    scatter_dim: int,
    group_name: str,
    return_product: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    with _group_for(group_name, _first(lefts)) as group:
        out, product = _known_plain_reduction_results(
            names, lefts, rights, reduce_op, scatter_dim, group.size, return_product
        )
    operands = (_plain(lefts), _plain(rights), scatter_dim, reduce_op)
    done = tandem.fused_matmul_reduce_scatter(
        *operands, group=group, out=out, product=False if product is None else product
    )
    reports.append(done.report)
    return out, product


_define(
    "fused_matmul_reduce_scatter(Tensor A, Tensor B, str reduce_op, int scatter_dim, str group_name) -> Tensor",
    lambda a, b, op, dim, group: _products_reduce_scatter(("A", "B"), [a], [b], op, dim, group)[0],
    lambda a, b, op, dim, group: _plain_reduction_results(("A", "B"), [a], [b], op, dim, _groups.size_of(group))[0],
)
_define(
    "fused_matmuls_reduce_scatter("
    "Tensor[] As, Tensor[] Bs, str reduce_op, int scatter_dim, str group_name, *, bool return_product = False) "
    "-> (Tensor, Tensor?)",
    lambda as_, bs, op, dim, group, return_product=False: _products_reduce_scatter(
        ("As", "Bs"), as_, bs, op, dim, group, return_product
    ),
    lambda as_, bs, op, dim, group, return_product=False: _plain_reduction_results(
        ("As", "Bs"), as_, bs, op, dim, _groups.size_of(group), return_product
    ),
)


def _scaled_reduction_results(
    names: tuple[str, str],
    lefts: Tensors,
    rights: Tensors,
    reduce_op: str,
    scatter_dim: int | None,
    world: int,
    lists: dict[str, Sequence[Any] | None],
    dtype: torch.dtype | None,
    return_product: bool,
    padded: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    out_dtype = dtype or _first(lefts).dtype
    results = _reduction_results(
        names, lefts, rights, reduce_op, scatter_dim, world, return_product, out_dtype, padded
    )
    for name, values in lists.items():
        if values is not None:
            _shapes.check_length(name, values, names[1], rights)
    _shapes.check_biases("biases", lists["biases"], names[1], rights)
    return results


def _scaled_matmuls_reduce_scatter(
    as_: Tensors,
    bs: Tensors,
    a_scales: MaybeTensors,
    b_scales: MaybeTensors,
    reduce_op: str,
    scatter_dim: int,
    group_name: str,
    biases: MaybeTensors | None = None,
    result_scales: MaybeTensors | None = None,
    *,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    return_product: bool = False,
    padded: bool = False,
    names: tuple[str, str] = ("As", "Bs"),
) -> tuple[torch.Tensor, torch.Tensor | None]:
    lists = {"A_scales": a_scales, "B_scales": b_scales, "biases": biases, "result_scales": result_scales}
    with _group_for(group_name, _first(as_)) as group:
        _shapes.check_tensors({names[0]: as_} | {name: values or () for name, values in lists.items()})
        out, product = _scaled_reduction_results(
            names, as_, bs, reduce_op, scatter_dim, group.size, lists, out_dtype, return_product, padded
        )
    size = bs[0].shape[1] if scatter_dim == as_[0].dim() - 1 else as_[0].shape[scatter_dim]
    rows = _shapes.own_rows(size, group.size, group.rank)
    own = out.narrow(scatter_dim, 0, rows)
    if not own.is_contiguous():
        own = torch.empty_like(own, memory_format=torch.contiguous_format)
    done = tandem.fused_scaled_matmul_reduce_scatter(
        _plain(as_),
        _plain(bs),
        _plain(a_scales),
        _plain(b_scales),
        scatter_dim,
        reduce_op,
        group=group,
        bias=_plain(_some(biases)),
        result_scale=_plain(_some(result_scales)),
        fast_accum=use_fast_accum,
        out_dtype=out.dtype,
        out=own,
        product=False if product is None else product,
    )
    reports.append(done.report)
    if rows < out.shape[scatter_dim]:
        out.narrow(scatter_dim, rows, out.shape[scatter_dim] - rows).zero_()
        if own.data_ptr() != out.data_ptr():
            out.narrow(scatter_dim, 0, rows).copy_(own)
    return out, product


def _scaled_matmuls_reduce_scatter_fake(
    as_: Tensors,
    bs: Tensors,
    a_scales: MaybeTensors,
    b_scales: MaybeTensors,
    reduce_op: str,
    scatter_dim: int,
    group_name: str,
    biases: MaybeTensors | None = None,
    result_scales: MaybeTensors | None = None,
    *,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    return_product: bool = False,
    padded: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    lists = {"A_scales": a_scales, "B_scales": b_scales, "biases": biases, "result_scales": result_scales}
    world = _groups.size_of(group_name)
    names = ("As", "Bs")
    return _scaled_reduction_results(
        names, as_, bs, reduce_op, scatter_dim, world, lists, out_dtype, return_product, padded
    )


_define(
    "fused_scaled_matmuls_reduce_scatter("
    "Tensor[] As, Tensor[] Bs, Tensor?[] A_scales, Tensor?[] B_scales, str reduce_op, int scatter_dim, "
    "str group_name, Tensor?[]? biases = None, Tensor?[]? result_scales = None, *, ScalarType? out_dtype = None, "
    "bool use_fast_accum = False, bool return_product = False, bool padded = False) -> (Tensor, Tensor?)",
    _scaled_matmuls_reduce_scatter,
    _scaled_matmuls_reduce_scatter_fake,
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


def _check_f8_scatter(a: torch.Tensor, b: torch.Tensor, output_shape: Sequence[int] | None) -> None:
    _shapes.check_f8("A", a)
    _shapes.check_f8("B", b)
    product = [*a.shape[:-1], *b.shape[1:]]
    if output_shape is not None and output_shape[-1] != product[-1]:
        _shapes.refuse(f"output_shape is {list(output_shape)}, need {product}")


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
    with _group_for(group_name, a):
        _shapes.check_tensors({"A": a, "B": b, "A_scale": a_scale})
        left, scale = _scaled_operands(a, a_scale, orig_scatter_dim, scatter_dim_after_maybe_reshape, output_shape)
        _check_f8_scatter(left, b, output_shape)
    return _scaled_matmuls_reduce_scatter(
        [left],
        [b],
        [scale],
        [b_scale],
        reduce_op,
        orig_scatter_dim,
        group_name,
        biases=[bias],
        result_scales=[result_scale],
        out_dtype=out_dtype,
        use_fast_accum=use_fast_accum,
        names=("A", "B"),
    )[0]


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
    _check_f8_scatter(left, b, output_shape)
    lists: dict[str, Sequence[Any] | None] = {"biases": [bias]}
    return _scaled_reduction_results(
        ("A", "B"), [left], [b], reduce_op, orig_scatter_dim, world, lists, out_dtype, False
    )[0]


_define(
    "fused_scaled_matmul_reduce_scatter("
    "Tensor A, Tensor B, Tensor A_scale, Tensor B_scale, str reduce_op, int orig_scatter_dim, "
    "int scatter_dim_after_maybe_reshape, str group_name, SymInt[]? output_shape, Tensor? bias = None, "
    "Tensor? result_scale = None, ScalarType? out_dtype = None, bool use_fast_accum = False) -> Tensor",
    _scaled_matmul_reduce_scatter,
    _scaled_matmul_reduce_scatter_fake,
)


# ---- products, then all-reduce ----


def _all_reduce_results(
    names: tuple[str, str],
    lefts: Tensors,
    rights: Tensors,
    reduce_op: str,
    bias: torch.Tensor | None,
    return_product: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """All of the sum, and this rank's own sum of products."""
    results = _plain_reduction_results(names, lefts, rights, reduce_op, None, 1, return_product)
    if bias is not None:
        _shapes.check_tensors({names[0]: lefts, "bias": bias})
        _shapes.check_types([names[0], "bias"], [lefts[0], bias])
        _shapes.check_bias("bias", bias, rights[0])
    return results


_known_all_reduce_results = _checked_once(_all_reduce_results)


def _products_all_reduce(
    names: tuple[str, str],
    lefts: Tensors,
    rights: Tensors,
    reduce_op: str,
    group_name: str,
    bias: torch.Tensor | None = None,
    return_product: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    with _group_for(group_name, _first(lefts)) as group:
        out, product = _known_all_reduce_results(names, lefts, rights, reduce_op, bias, return_product)
    done = tandem.fused_matmul_all_reduce(
        _plain(lefts),
        _plain(rights),
        reduce_op,
        group=group,
        bias=_plain(bias),
        out=out,
        product=False if product is None else product,
    )
    reports.append(done.report)
    return out, product


_define(
    "fused_matmul_all_reduce(Tensor A, Tensor B, str reduce_op, str group_name, Tensor? bias = None) -> Tensor",
    lambda a, b, op, group, bias=None: _products_all_reduce(("A", "B"), [a], [b], op, group, bias)[0],
    lambda a, b, op, group, bias=None: _all_reduce_results(("A", "B"), [a], [b], op, bias, False)[0],
)
_define(
    "fused_matmuls_all_reduce("
    "Tensor[] As, Tensor[] Bs, str reduce_op, str group_name, Tensor? bias = None, *, bool return_product = False) "
    "-> (Tensor, Tensor?)",
    lambda as_, bs, op, group, bias=None, return_product=False: _products_all_reduce(
        ("As", "Bs"), as_, bs, op, group, bias, return_product
    ),
    lambda as_, bs, op, group, bias=None, return_product=False: _all_reduce_results(
        ("As", "Bs"), as_, bs, op, bias, return_product
    ),
)


def _scaled_all_reduce_results(
    as_: Tensors,
    bs: Tensors,
    a_scales: MaybeTensors,
    b_scales: MaybeTensors,
    reduce_op: str,
    group_name: str,
    biases: MaybeTensors | None = None,
    result_scales: MaybeTensors | None = None,
    *,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    return_product: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    lists = {"A_scales": a_scales, "B_scales": b_scales, "biases": biases, "result_scales": result_scales}
    names = ("As", "Bs")
    return _scaled_reduction_results(names, as_, bs, reduce_op, None, 1, lists, out_dtype, return_product)


def _scaled_matmuls_all_reduce(
    as_: Tensors,
    bs: Tensors,
    a_scales: MaybeTensors,
    b_scales: MaybeTensors,
    reduce_op: str,
    group_name: str,
    biases: MaybeTensors | None = None,
    result_scales: MaybeTensors | None = None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    lists = {"A_scales": a_scales, "B_scales": b_scales, "biases": biases, "result_scales": result_scales}
    with _group_for(group_name, _first(as_)) as group:
        _shapes.check_tensors({"As": as_} | {name: values or () for name, values in lists.items()})
        out, product = _scaled_all_reduce_results(
            as_, bs, a_scales, b_scales, reduce_op, group_name, biases, result_scales, **options
        )
    done = tandem.fused_scaled_matmul_all_reduce(
        _plain(as_),
        _plain(bs),
        [None if scale is None else _plain(scale).contiguous() for scale in a_scales],
        _plain(b_scales),
        reduce_op,
        group=group,
        bias=_plain(_some(biases)),
        result_scale=_plain(_some(result_scales)),
        fast_accum=options.get("use_fast_accum", False),
        out_dtype=out.dtype,
        out=out,
        product=False if product is None else product,
    )
    reports.append(done.report)
    return out, product


_define(
    "fused_scaled_matmuls_all_reduce("
    "Tensor[] As, Tensor[] Bs, Tensor?[] A_scales, Tensor?[] B_scales, str reduce_op, str group_name, "
    "Tensor?[]? biases = None, Tensor?[]? result_scales = None, *, ScalarType? out_dtype = None, "
    "bool use_fast_accum = False, bool return_product = False) -> (Tensor, Tensor?)",
    _scaled_matmuls_all_reduce,
    _scaled_all_reduce_results,
)


# ---- one rank ----


def _async_input_result(a: torch.Tensor, b: torch.Tensor, signals: torch.Tensor, pivot: int) -> torch.Tensor:
    _shapes.check_tensors({"a": a, "b": b, "a_chunk_signals": signals})
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
    _shapes.check_tensors({"input": input})
    _shapes.check_dim("gather_dim", gather_dim, input)
    order = [input.shape[gather_dim] * world, *input.shape[:gather_dim], *input.shape[gather_dim + 1 :]]
    return input.new_empty(order)


def _all_gather(input: torch.Tensor, gather_dim: int, group_name: str) -> torch.Tensor:
    with _group_for(group_name, input) as group:
        out = _gathered(input, gather_dim, group.size)
    tandem.all_gather(_plain(input).movedim(gather_dim, 0).contiguous(), group=group, out=out)
    return out.movedim(0, gather_dim)


_define(
    "all_gather(Tensor input, int gather_dim, str group_name) -> Tensor",
    _all_gather,
    lambda input, dim, group: _gathered(input, dim, _groups.size_of(group)).movedim(0, dim),
)


def _scattered(input: torch.Tensor, reduce_op: str, scatter_dim: int, world: int) -> torch.Tensor:
    _shapes.check_tensors({"input": input})
    _shapes.check_dim("scatter_dim", scatter_dim, input)
    _shapes.check_reduce_op(reduce_op)
    return input.new_empty(_shapes.scattered_sizes(input.shape, scatter_dim, world))


def _reduce_scatter(input: torch.Tensor, reduce_op: str, scatter_dim: int, group_name: str) -> torch.Tensor:
    with _group_for(group_name, input) as group:
        out = _scattered(input, reduce_op, scatter_dim, group.size)
    rows = _plain(input).movedim(scatter_dim, 0).contiguous()
    tandem.reduce_scatter(rows, reduce_op, group=group, out=out.movedim(scatter_dim, 0))
    return out


_define(
    "reduce_scatter(Tensor input, str reduce_op, int scatter_dim, str group_name) -> Tensor",
    _reduce_scatter,
    lambda input, op, dim, group: _scattered(input, op, dim, _groups.size_of(group)),
)


def _reduced(input: torch.Tensor, reduce_op: str) -> torch.Tensor:
    _shapes.check_tensors({"input": input})
    _shapes.check_dim("dim", 0, input)
    _shapes.check_reduce_op(reduce_op)
    return input.new_empty(input.shape)


def _all_reduce(input: torch.Tensor, reduce_op: str, group_name: str) -> torch.Tensor:
    with _group_for(group_name, input) as group:
        out = _reduced(input, reduce_op)
    tandem.all_reduce(_plain(input).contiguous(), reduce_op, group=group, out=out)
    return out


_define(
    "all_reduce(Tensor input, str reduce_op, str group_name) -> Tensor",
    _all_reduce,
    lambda input, op, group: _reduced(input, op),
)
