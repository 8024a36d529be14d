"""The ops of torch.ops.tandem: values against float64, and what they have in common with torch.ops.symm_mem."""

import itertools

import pytest
from torch_ranks import (
    TYPES,
    WORLDS,
    caught,
    check,
    needs_torch,
    product,
    random,
    rounded_product,
    run,
    with_holes,
    world,
)

import tandem

pytestmark = needs_torch

SHARED = (
    "fused_all_gather_matmul",
    "fused_all_gather_scaled_matmul",
    "fused_matmul_reduce_scatter",
    "fused_scaled_matmul_reduce_scatter",
)


def layouts(results):
    """Sizes, strides and types of what an op gives."""
    import torch

    if isinstance(results, torch.Tensor):
        return tuple(results.shape), results.stride(), results.dtype
    return None if results is None else [layouts(each) for each in results]


def on_meta(arguments):
    import torch

    if isinstance(arguments, torch.Tensor):
        return arguments.detach().to("meta")
    return type(arguments)(map(on_meta, arguments)) if isinstance(arguments, (list, tuple)) else arguments


def same_as_symm_mem(name, results, *args, **named):
    """Whether PyTorch's op gives the same sizes, strides and types as ours and its fake implementation do."""
    import torch
    import torch.distributed._symmetric_memory  # makes torch.ops.symm_mem

    want = layouts(getattr(torch.ops.symm_mem, name)(*on_meta(args), **named))
    assert layouts(results) == want, name
    assert layouts(getattr(torch.ops.tandem, name)(*on_meta(args), **named)) == want, name


def test_schemas():
    import torch
    import torch.distributed._symmetric_memory  # makes torch.ops.symm_mem

    for name in SHARED:
        ours, theirs = (getattr(getattr(torch.ops, space), name).default for space in ("tandem", "symm_mem"))
        assert str(ours._schema).partition("::")[2] == str(theirs._schema).partition("::")[2]
        assert torch.Tag.needs_fixed_stride_order in ours.tags
    ours = torch.ops.tandem._async_input_mm.default._schema
    assert str(ours) == str(torch.ops.symm_mem._async_input_mm.default._schema).replace("symm_mem::", "tandem::")


def gathers(rank, size):
    import torch

    for dtype, dim, return_a in itertools.product(TYPES, (0, 1, 2), (True, False)):
        where = f"{dtype} dim {dim}"
        whole = random([4 * size, 6 * size, 8 * size], dtype, 1)
        a = with_holes(whole.chunk(size, dim)[rank])
        b = random([8 * size, 6], dtype, 2)
        bs = [b, b.t().contiguous().t()[:, :4], with_holes(b)]
        args = (a, bs, dim, world())
        gathered, outs = torch.ops.tandem.fused_all_gather_matmul(*args, return_A=return_a)
        assert torch.equal(gathered, whole) if return_a else gathered is None
        for out, right in zip(outs, bs, strict=True):
            check(out, *product(whole, right), where=where)
        # PyTorch's fake implementation has wrong sizes for the last dim, and on one rank other strides than its op.
        if dim < 2 and size > 1:
            same_as_symm_mem("fused_all_gather_matmul", (gathered, tuple(outs)), *args, return_A=return_a)


def scatters(rank, size):
    import torch

    for dtype, dim, reduce_op in itertools.product(TYPES, (0, 1, 2), ("sum", "avg")):
        where = f"{dtype} dim {dim} {reduce_op}"
        lefts = [random([4 * size, 2 * size, 11], dtype, 1, r) for r in range(size)]
        rights = [random([11, 6 * size], dtype, 2, r) for r in range(size)]
        pairs = [product(a, b) for a, b in zip(lefts, rights, strict=True)]
        factor = 1 / size if reduce_op == "avg" else 1
        want = factor * sum(value for value, _ in pairs)
        magnitude = sum(largest for _, largest in pairs)
        args = (with_holes(lefts[rank]), rights[rank], reduce_op, dim, world())
        out = torch.ops.tandem.fused_matmul_reduce_scatter(*args)
        check(out, want.chunk(size, dim)[rank], magnitude.chunk(size, dim)[rank], 2, where)
        same_as_symm_mem("fused_matmul_reduce_scatter", out, *args)
        twice, _ = torch.ops.tandem.fused_matmuls_reduce_scatter([args[0]] * 2, [args[1]] * 2, *args[2:])
        check(twice, 2 * want.chunk(size, dim)[rank], 2 * magnitude.chunk(size, dim)[rank], 2, where)


def all_reduces(rank, size):
    import torch

    for dtype, reduce_op in itertools.product(TYPES, ("sum", "avg")):
        where = f"{dtype} {reduce_op}"
        lefts = [random([4, 7, 11], dtype, 1, r) for r in range(size)]
        rights = [random([11, 6], dtype, 2, r) for r in range(size)]
        pairs = [product(a, b) for a, b in zip(lefts, rights, strict=True)]
        want = sum(value for value, _ in pairs) / (size if reduce_op == "avg" else 1)
        magnitude = sum(largest for _, largest in pairs) + 1
        bias = random([6], dtype, 3)
        args = (with_holes(lefts[rank]), rights[rank], reduce_op, world())
        out = torch.ops.tandem.fused_matmul_all_reduce(*args)
        assert out.is_contiguous() and out.dtype == rights[rank].dtype
        check(out, want, magnitude, 2, where)
        check(torch.ops.tandem.fused_matmul_all_reduce(*args, bias), want + bias.double(), magnitude, 2, where)
        lists = [args[0].transpose(0, 1)] * 2, [args[1]] * 2
        twice, own = torch.ops.tandem.fused_matmuls_all_reduce(*lists, *args[2:], return_product=True)
        check(twice, 2 * want.transpose(0, 1), 2 * magnitude.transpose(0, 1), 2, where)
        check(own, *(2 * part.transpose(0, 1) for part in pairs[rank]), 2, where)
        again = torch.ops.tandem.all_reduce(own, reduce_op, world())
        check(again, 2 * want.transpose(0, 1), 2 * magnitude.transpose(0, 1), 4, where)

    a, b = f8([4, 6, 16], 1), f8([16, 32], 2)
    scales = [random([4, 6, 1], "float32", 3).abs() + 0.5], [torch.tensor(2.0)]
    args = ([a], [b], *scales, "sum", world())
    out, _ = torch.ops.tandem.fused_scaled_matmuls_all_reduce(*args, out_dtype=torch.float32)
    value, magnitude = product(a, b)
    factor = 2 * size * scales[0][0].double()
    check(out, value * factor, magnitude * factor + 1, 2)


def f8(shape, *seed):
    return random(shape, "float8_e4m3fn", *seed)


def scaled_gathers(rank, size):
    import torch

    cases = [*itertools.product((0, 1), ("tensorwise", "sharded", "replicated")), (2, "tensorwise")]
    for dim, mode in cases:
        whole = f8([4 * size, 6 * size, 16 * size], 1)
        a = whole.chunk(size, dim)[rank]
        scales = random([*whole.shape[:-1], 1], "float32", 3).abs() + 0.5
        if mode == "tensorwise":
            scale = scales = torch.tensor(0.25)
        else:
            scale = scales.chunk(size, dim)[rank].contiguous() if mode == "sharded" else scales
        bs = [f8([n, 16 * size], 2, n).t() for n in (16, 32, 48)]
        if mode == "tensorwise":
            b_scales = [torch.tensor(0.5), torch.tensor(0.25), torch.tensor(2.0)]
        else:
            b_scales = [random([1, b.shape[1]], "float32", 4).abs() + 0.5 for b in bs]
        biases = [random([16], "bfloat16", 5), None, None]
        types = [torch.bfloat16, torch.float32, torch.float8_e4m3fn]
        args = (a, bs, scale, b_scales, dim, world(), biases, [None] * 3, types, [False] * 3)
        gathered, outs = torch.ops.tandem.fused_all_gather_scaled_matmul(*args)
        assert torch.equal(gathered.float(), whole.float())
        for i, out in enumerate(outs):
            factors = scales.double() * b_scales[i].double()
            value, magnitude = (factors * part for part in product(whole, bs[i]))
            bias = 0 if biases[i] is None else biases[i].double()
            assert out.dtype == types[i]
            check(out, value + bias, magnitude + 1, where=f"dim {dim} {mode} {types[i]}")
        real = (gathered, tuple(outs))
        assert layouts(torch.ops.tandem.fused_all_gather_scaled_matmul(*on_meta(args))) == layouts(real)


def scaled_scatters(rank, size):
    import torch

    any_dim = [(4 * size, *case) for case in itertools.product((0, 1, 2), (False, True), (False, True))]
    rows_of_batches = [(batch, 1, rowwise, True) for batch in (1, 2, 8) for rowwise in (False, True)]
    for batch, dim, rowwise, flat in any_dim + rows_of_batches:
        shape = [batch, 2 * size]
        lefts = [f8([*shape, 16], 1, r) for r in range(size)]
        rights = [f8([32, 16], 2, r).t() for r in range(size)]
        scales = [random([*shape, 1], "float32", 3, r).abs() + 0.5 for r in range(size)]
        b_scale = random([1, 32], "float32", 4).abs() + 0.5
        if not rowwise:
            scales, b_scale = [torch.tensor(0.25)] * size, torch.tensor(0.5)
        bias = random([32], "bfloat16", 5)
        pairs = [product(a, b) for a, b in zip(lefts, rights, strict=True)]
        factors = [s.double() * b_scale.double() for s in scales]
        want = sum(f * v for f, (v, _) in zip(factors, pairs, strict=True)) + size * bias.double()
        magnitude = sum(f * m for f, (_, m) in zip(factors, pairs, strict=True)) + size
        a, scale = lefts[rank], scales[rank]
        if flat:
            a, scale = a.flatten(0, 1), scale.flatten(0, 1) if rowwise else scale
        args = (a, rights[rank], scale, b_scale, "sum", dim, dim // 2 if flat else dim, world(), [*shape, 32], bias)
        out = torch.ops.tandem.fused_scaled_matmul_reduce_scatter(*args, out_dtype=torch.bfloat16)
        parts = (want.chunk(size, dim)[rank], magnitude.chunk(size, dim)[rank])
        check(out, *parts, 2, where=f"batch {batch} dim {dim} rowwise {rowwise} flat {flat}")
        fake = torch.ops.tandem.fused_scaled_matmul_reduce_scatter(*on_meta(args), out_dtype=torch.bfloat16)
        assert layouts(fake) == layouts(out)


def quantized_gathers(rank, size):
    import torch

    f8_types = (torch.float8_e4m3fn, torch.float8_e5m2)
    op = torch.ops.tandem.fused_all_gather_quantized_matmul
    for dtype, quantize, dim, return_a in itertools.product(TYPES, f8_types, (0, 1), (True, False)):
        where = f"{dtype} {quantize} dim {dim} return_A {return_a}"
        whole = random([4 * size, 6 * size, 16], dtype, 1)
        whole.flatten(0, 1)[::5] *= 1000  # rows of other sizes, and one of zeros
        whole[0, 0] = 0
        a = with_holes(whole.chunk(size, dim)[rank])
        b = random([16, 48], dtype, 2)
        bs = [b, b.t().contiguous().t()[:, :16], with_holes(b)]
        args, named = (a, bs, dim, world()), {"quantize": quantize, "return_A": return_a}
        gathered, outs = op(*args, **named)
        assert torch.equal(gathered, whole) if return_a else gathered is None
        for out, right in zip(outs, bs, strict=True):
            check(out, *rounded_product(whole, right, quantize), where=where)
        assert layouts(op(*on_meta(args), **named)) == layouts((gathered, outs))
        _, outs = torch.ops.tandem.fused_all_gather_matmul(*args)
        assert layouts(op(*args, **named)[1]) == layouts(outs)


def quantized_scatters(rank, size):
    import torch

    op = torch.ops.tandem.fused_quantized_matmul_reduce_scatter
    for dtype, dim, reduce_op in itertools.product(TYPES, (0, 1, 2), ("sum", "avg")):
        quantize = torch.float8_e5m2 if reduce_op == "avg" else torch.float8_e4m3fn
        lefts = [random([4 * size, 2 * size, 16], dtype, 1, r) for r in range(size)]
        rights = [random([16, 16 * size], dtype, 2, r) for r in range(size)]
        pairs = [rounded_product(a, b, quantize) for a, b in zip(lefts, rights, strict=True)]
        factor = 1 / size if reduce_op == "avg" else 1
        want = factor * sum(value for value, _ in pairs)
        magnitude = sum(largest for _, largest in pairs)
        args = (with_holes(lefts[rank]), rights[rank], reduce_op, dim, world())
        out = op(*args, quantize=quantize)
        parts = (want.chunk(size, dim)[rank], magnitude.chunk(size, dim)[rank])
        check(out, *parts, 2, f"{dtype} dim {dim} {reduce_op}")
        assert layouts(op(*on_meta(args), quantize=quantize)) == layouts(out)
        assert layouts(torch.ops.tandem.fused_matmul_reduce_scatter(*args)) == layouts(out)


def async_input(rank, size):
    import torch

    for dtype, pivot in itertools.product(TYPES, (0, 2)):
        a, b = random([25, 8], dtype, 1), random([8, 6], dtype, 2)
        signals = torch.ones(4, dtype=torch.uint32)
        for op in (torch.ops.tandem.async_input_mm, torch.ops.tandem._async_input_mm, tandem.torch.async_input_mm):
            out = op(a, b, signals, pivot)
            check(out, *product(a, b))
            assert layouts(op(*on_meta((a, b, signals, pivot)))) == layouts(out)


def collectives(rank, size):
    import torch

    for dim in (0, 1, 2):
        whole = random([4 * size, 2 * size, 6 * size], "float32", 1)
        gathered = torch.ops.tandem.all_gather(whole.chunk(size, dim)[rank], dim, world())
        assert torch.equal(gathered, whole)
        out = torch.ops.tandem.reduce_scatter(whole, "avg", dim, world())
        torch.testing.assert_close(out, whole.chunk(size, dim)[rank])
        assert out.is_contiguous()


def nothing_to_do(rank, size):
    import torch

    a, b = torch.zeros(0, 8), torch.zeros(8, 3)
    gathered, (out,) = torch.ops.tandem.fused_all_gather_matmul(a, [b], 0, world())
    assert gathered.shape == (0, 8) and out.shape == (0, 3)
    assert torch.ops.tandem.fused_matmul_reduce_scatter(a, b, "sum", 0, world()).shape == (0, 3)


def values(rank, size):
    plain, scaled = (gathers, scatters, all_reduces), (scaled_gathers, scaled_scatters)
    for work in (*plain, *scaled, quantized_gathers, quantized_scatters, async_input, collectives, nothing_to_do):
        work(rank, size)


@pytest.mark.parametrize("size", WORLDS)
def test_values(size):
    run(values, size)


def padded_shard(whole, dim, rank, size):
    """A rank's shard with NaNs behind its own rows, so that all are as long as the first."""
    import torch

    stride = -(-whole.shape[dim] // size)
    begin, end = (min(whole.shape[dim], each * stride) for each in (rank, rank + 1))
    own = whole.narrow(dim, begin, end - begin)
    sizes = list(whole.shape)
    sizes[dim] = stride - (end - begin)
    return torch.cat([own, torch.full(sizes, torch.nan).to(whole.dtype)], dim), end - begin


def uneven_gathers(rank, size):
    import torch

    for dtype, dim, total in itertools.product(TYPES, (0, 1, 2), (1, 4, 5, 7)):
        where = f"{dtype} dim {dim} of {total}"
        sizes = [2, 3, 4]
        sizes[dim] = total
        whole = random(sizes, dtype, 1)
        a, _ = padded_shard(whole, dim, rank, size)
        b, bias = random([sizes[2], 6], dtype, 2), random([6], dtype, 3)
        gathered, (plain, biased) = torch.ops.tandem.fused_all_gather_addmm(
            a, [b, b], [None, bias], dim, world(), gather_size=total
        )
        want, magnitude = product(whole, b)
        assert torch.equal(gathered, whole), where
        check(plain, want, magnitude, where=where)
        check(biased, want + bias.double(), magnitude + bias.double().abs(), where=where)


def uneven_f8_gathers(rank, size):
    """Also their scales, and what is gathered beside them."""
    import torch

    for dim, total in itertools.product((0, 1), (1, 4, 5, 7)):
        sizes = [2, 3, 16]
        sizes[dim] = total
        whole, wide = f8(sizes, 1), random([*sizes[:2], 4], "bfloat16", 4)
        b, scale, b_scale = f8([16, 8], 2), random([*sizes[:2], 1], "float32", 3).abs() + 0.5, torch.ones(1, 8)
        shards = [padded_shard(each, dim, rank, size)[0] for each in (whole, scale, wide)]
        lists = ([None], [None], [torch.bfloat16], [False])
        gathered, (out,), (beside,) = torch.ops.tandem.fused_all_gathers_scaled_matmul(
            shards[0],
            [b],
            shards[1],
            [b_scale],
            dim,
            world(),
            *lists,
            [shards[2]],
            scale_mode="rowwise_sharded",
            gather_size=total,
        )
        assert torch.equal(gathered.float(), whole.float()) and torch.equal(beside, wide), (dim, total)
        check(out, *(each * scale.double() for each in product(whole, b)), where=f"dim {dim} of {total}")


def uneven_scatters(rank, size):
    import torch

    for dtype, dim, total in itertools.product(TYPES, (0, 1, 2), (1, 4, 5, 7)):
        sizes = [2, 3, 4]
        sizes[dim] = total
        lefts = [random([*sizes[:2], 8], dtype, 1, each) for each in range(size)]
        b = random([8, sizes[2]], dtype, 2)
        out, own = torch.ops.tandem.fused_scaled_matmuls_reduce_scatter(
            [lefts[rank]], [b], [None], [None], "sum", dim, world(), return_product=True, padded=True
        )
        want, magnitude = (sum(each) for each in zip(*(product(left, b) for left in lefts), strict=True))
        (part, rows), (most, _) = (padded_shard(each, dim, rank, size) for each in (want, magnitude))
        where = f"{dtype} dim {dim} of {total}"
        assert list(out.shape) == list(part.shape) and out.is_contiguous(), where
        check(out.narrow(dim, 0, rows), part.narrow(dim, 0, rows), most.narrow(dim, 0, rows), 4, where)
        assert not out.narrow(dim, rows, part.shape[dim] - rows).any(), where
        check(own, *product(lefts[rank], b), where=where)


def wrong_sizes(rank, size):
    import torch

    a, b = random([2, 8], "float32", 1), random([8, 6], "float32", 2)
    error = caught(torch.ops.tandem.fused_all_gather_addmm, a, [b], [None], 0, world(), gather_size=2 * size + 1)
    assert f"gather_size is {2 * size + 1}, need {size + 1} to {2 * size}: {size} shards of 2" in str(error)
    left = random([size + 1, 8], "float32", 1)
    error = caught(
        torch.ops.tandem.fused_scaled_matmuls_reduce_scatter, [left], [b], [None], [None], "sum", 0, world()
    )
    assert f"dim 0 of the product has size {size + 1}, need a multiple of the group's size {size}" in str(error)


def uneven(rank, size):
    for one in (uneven_gathers, uneven_f8_gathers, uneven_scatters, wrong_sizes):
        one(rank, size)


def test_uneven_shards():
    """Of three ranks the last ones have fewer rows, or none."""
    run(uneven, 3)


def waited(tensor):
    import torch

    return torch.ops._c10d_functional.wait_tensor(tensor)


def low_contention_gathers(rank, size):
    """The bits are those of tandem.all_gather() along any dim, also where the last shards are short or empty."""
    import torch

    op, group = torch.ops.tandem.low_contention_all_gather, tandem.torch.group_of(world())
    for dtype, dim, total in itertools.product(("bfloat16", "float32"), (0, 1, -1), (4 * size, 1, 7)):
        where = f"{dtype} dim {dim} of {total}"
        sizes = [2, 3, 4]
        sizes[dim] = total
        whole = random(sizes, dtype, 1)
        shard = whole.narrow(dim, *tandem.shard_of(total, size, rank))
        for mine in (shard, shard.contiguous(), with_holes(shard)):
            got = waited(op(mine, dim, world(), total=total))
            assert torch.equal(got, whole) and got.is_contiguous() and got.dtype == whole.dtype, where
        assert layouts(op(mine.to("meta"), dim, world(), total=total)) == layouts(got), where
        rows = tandem.all_gather(shard.movedim(dim, 0).contiguous(), total, group=group)
        assert torch.equal(got.movedim(dim, 0), rows), where
        if total == 4 * size:
            assert torch.equal(waited(op(shard, dim, world())), whole), where


def low_contention_scatters(rank, size):
    """The bits are those of tandem.reduce_scatter() along any dim."""
    import torch

    op, group = torch.ops.tandem.low_contention_reduce_scatter, tandem.torch.group_of(world())
    cases = itertools.product(("bfloat16", "float32"), (0, 1, -1), (4 * size, 1, 7), ("sum", "avg"))
    for dtype, dim, total, reduce_op in cases:
        where = f"{dtype} dim {dim} of {total} {reduce_op}"
        sizes = [2, 3, 4]
        sizes[dim] = total
        own = random(sizes, dtype, 1, rank)
        rows = tandem.reduce_scatter(own.movedim(dim, 0).contiguous(), reduce_op, group=group)
        for mine in (own, with_holes(own)):
            got = waited(op(mine, reduce_op, dim, world()))
            assert got.is_contiguous() and got.dtype == own.dtype, where
            assert torch.equal(got.movedim(dim, 0), rows), where
        assert layouts(op(own.to("meta"), reduce_op, dim, world())) == layouts(got), where
        assert size == 1 or rows.numel() == 0 or not torch.equal(rows, own.movedim(dim, 0)[: rows.shape[0]]), where


def waits(rank, size):
    """A call returns before its peers have called, and a wait is for its own call, not for those behind it."""
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional

    gather = tandem.torch.low_contention_all_gather
    whole = [random([4 * size, 6], "float32", each) for each in (1, 2)]
    first, second = (each.chunk(size)[rank] for each in whole)
    if rank == 0:
        one, other = gather(first, 0, dist.group.WORLD), gather(second, 0, world())
        dist.barrier()
        assert torch.equal(functional.wait_tensor(one), whole[0])
        dist.barrier()
    else:
        dist.barrier()
        one = gather(first, 0, dist.group.WORLD)
        assert torch.equal(functional.wait_tensor(one), whole[0])
        dist.barrier()
        other = gather(second, 0, world())
    for _ in range(2):  # the second wait does nothing
        assert waited(other) is other and torch.equal(other, whole[1])


def many_calls(rank, size):
    """Nothing is waited for until the end, and the memory of inputs is not used meanwhile."""
    import torch

    scatter = tandem.torch.low_contention_reduce_scatter
    whole = random([4 * size, 6], "float32", 1)
    results = []
    for factor in range(1, 30):
        late = whole * factor
        results.append((factor, scatter(late, "avg", 0, world())))
        del late
        torch.empty_like(whole).fill_(torch.nan)  # takes its memory
    for factor, got in reversed(results):
        torch.testing.assert_close(waited(got), factor * whole.chunk(size)[rank])


def never_waited(rank, size):
    """Later calls of the group come behind it, and so does the end of the group."""
    import torch

    a, b = random([4, 8], "float32", rank), random([8, 6], "float32", 2)
    whole = torch.cat([random([4, 8], "float32", each) for each in range(size)])
    gather = tandem.torch.low_contention_all_gather
    left = gather(a, 0, world())
    gather(a, 0, world())  # not even kept
    _, (out,) = tandem.torch.fused_all_gather_matmul(a, [b], 0, world())
    check(out, *product(whole, b))
    last = gather(a, 0, world())
    tandem.torch.close_groups()
    assert torch.equal(waited(left), whole) and torch.equal(waited(last), whole)
    assert torch.equal(waited(gather(a, 0, world())), whole)  # by a new group
    gather(a, 0, world())


def low_contention(rank, size):
    for work in (low_contention_gathers, low_contention_scatters, waits, many_calls, never_waited):
        work(rank, size)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_low_contention(size):
    run(low_contention, size)


def reported(rank, size):
    """Every fused op leaves a report of what it ran."""
    import torch

    a, b = torch.ones(4, 8), torch.ones(8, 6)
    torch.ops.tandem.fused_all_gather_matmul(a, [b], 0, world())
    torch.ops.tandem.fused_matmul_reduce_scatter(a, b, "sum", 0, world())
    torch.ops.tandem.fused_matmul_all_reduce(a, b, "sum", world())
    return [(report.key.split()[0], report.algorithm) for report in tandem.torch.recent_reports()[-3:]]


def test_reports():
    for reports in run(reported, 2):
        names, algorithms = zip(*reports, strict=True)
        assert names == ("all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce")
        assert set(algorithms) <= {"native", "pipelined", "serial"}


def checks(rank, size):
    import torch

    def grad(*shape):
        return torch.randn(*shape).requires_grad_()

    ops, name = torch.ops.tandem, world()
    calls = []
    for dim in (0, 1, 2):
        k = 8 * size if dim == 2 else 8
        calls.append((ops.fused_all_gather_matmul, (grad(4, 6, 8), [grad(k, 5), grad(k, 3)], dim, name), {}))
        calls.append((ops.fused_all_gather_matmul, (grad(4, 6, 8), [grad(k, 5)], dim, name), {"return_A": False}))
        calls.append((ops.fused_matmul_reduce_scatter, (grad(4, 6, 8), grad(8, 6), "avg", dim, name), {}))
        operands = torch.randn(4, 6, 8), [torch.randn(k, 5), torch.randn(k, 3)], [torch.randn(5), None]
        calls.append((ops.fused_all_gather_addmm, (*operands, dim, name), {}))
    lists = [grad(4, 6), grad(4, 8)], [grad(6, 5), grad(8, 5)]
    for named in ({}, {"return_product": True}):
        calls.append((ops.fused_matmuls_all_reduce, (*lists, "sum", name, grad(5)), named))
    calls.append((ops.fused_matmul_all_reduce, (grad(4, 6, 8), grad(8, 6), "avg", name), {}))
    calls.append((ops.all_reduce, (grad(4, 6), "avg", name), {}))
    for named in ({}, {"return_product": True}):
        calls.append((ops.fused_matmuls_reduce_scatter, (*lists, "sum", 0, name), named))
    e4m3 = {"quantize": torch.float8_e4m3fn}
    for named in (e4m3, {**e4m3, "return_A": False, "use_fast_accum": True}):
        args = (grad(4, 6, 16), [grad(16, 16), grad(16, 32)], 1, name)
        calls.append((ops.fused_all_gather_quantized_matmul, args, named))
    calls.append((ops.fused_quantized_matmul_reduce_scatter, (grad(4, 6, 16), grad(16, 16), "avg", 1, name), e4m3))
    calls.append((ops.all_gather, (grad(4, 6), 1, name), {}))
    calls.append((ops.reduce_scatter, (grad(4, 6), "avg", 1, name), {}))
    signals = torch.ones(3, dtype=torch.uint32)
    calls.append((ops.async_input_mm, (torch.randn(4, 6), torch.randn(6, 3), signals, 1), {}))
    for op, args, named in calls:
        torch.library.opcheck(op.default, args, named)
    # The check that compares values would read them without a wait.
    known = ("test_schema", "test_autograd_registration", "test_faketensor")
    for dim, named in ((0, {}), (-1, {"total": 12})):
        args = (grad(4, 6), dim, name)
        torch.library.opcheck(ops.low_contention_all_gather.default, args, named, test_utils=known)
        args = (grad(4, 6), "avg", dim, name)
        torch.library.opcheck(ops.low_contention_reduce_scatter.default, args, test_utils=known)

    # PyTorch's check that an op leaves its arguments as they are does not know fp8.
    known = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    one, bf16 = torch.tensor(1.0), torch.bfloat16
    a, b = f8([4, 6, 16], 1), f8([16, 16], 2)
    for out_dtype in (bf16, None):
        args = (a, [b], one, [one], 1, name, [None], [None], [out_dtype], [False])
        torch.library.opcheck(ops.fused_all_gather_scaled_matmul.default, args, test_utils=known)
    for named in ({}, {"return_A": False, "scale_mode": "tensorwise"}):
        beside = [torch.rand(4, 6, 2), torch.rand(4, 6, 1)]
        args = (a, [b], one, [one], 1, name, [None], [None], [bf16], [False], beside)
        torch.library.opcheck(ops.fused_all_gathers_scaled_matmul.default, args, named, test_utils=known)
    scales = [torch.rand(4, 6, 1), None], [torch.rand(1, 16), None]
    plain = torch.rand(4, 6, 8).to(bf16), torch.rand(8, 16).to(bf16)
    args = ([a, plain[0]], [b, plain[1]], *scales, "sum", 1, name)
    for named in ({"out_dtype": bf16}, {"out_dtype": bf16, "return_product": True}):
        torch.library.opcheck(ops.fused_scaled_matmuls_reduce_scatter.default, args, named, test_utils=known)
        reduced = (*args[:5], name)
        torch.library.opcheck(ops.fused_scaled_matmuls_all_reduce.default, reduced, named, test_utils=known)
    args = (a.flatten(0, 1), b, torch.rand(24, 1), torch.rand(1, 16), "sum", 1, 0, name, [4, 6, 16], None, None, bf16)
    torch.library.opcheck(ops.fused_scaled_matmul_reduce_scatter.default, args, test_utils=known)
    assert torch.equal(a.float(), f8([4, 6, 16], 1).float()) and torch.equal(b.float(), f8([16, 16], 2).float())


def test_opcheck():
    run(checks, 2)


@pytest.mark.parametrize("group", [32, 128])
def test_4bit_weights_of_pytorch(group):
    """Nibbles and scales as PyTorch's own packing takes them give our product within its error, and near PyTorch's."""
    import torch

    n, k = 64, 128
    torch.manual_seed(3)
    x, weight, bias = torch.randn(5, k), torch.randn(n, k), torch.randn(n)
    groups = weight.reshape(n, -1, group)
    scales = groups.abs().amax(-1) / 7
    if group < k:
        scales = scales.to(torch.bfloat16)
    q = (groups / scales.float()[..., None] + 8.5).to(torch.int8).clamp(min=0, max=15)
    want = x.double() @ ((q.double() - 8) * scales.double()[..., None]).reshape(n, k).T + bias
    q = q.reshape(n, k)
    nibbles = (q[:, 1::2] << 4 | q[:, ::2]).to(torch.uint8)

    def error_of(got):
        return float((got.double() - want).norm() / want.norm())

    packed = tandem.pack_4bit_weight(nibbles, scales, bias, group, k, n)
    got = tandem.matmul_4bit(x, packed)
    assert isinstance(got, torch.Tensor)
    assert error_of(got) <= 0.02
    out = torch.zeros(5, n, dtype=torch.bfloat16)
    assert tandem.matmul_4bit(x.to(torch.bfloat16), packed, out=out) is out
    assert error_of(out) <= 0.02
    own = tandem.quantize_weight_4bit(weight, group)
    assert isinstance(own[0], torch.Tensor)
    assert (own[0] == nibbles).double().mean() > 0.9  # scales of bf16 round a few other ways
    if not hasattr(torch.ops.aten, "_dyn_quant_pack_4bit_weight"):
        pytest.skip("this PyTorch has no _dyn_quant_pack_4bit_weight")
    # PyTorch takes a bias by channels only.
    theirs = torch.ops.aten._dyn_quant_pack_4bit_weight(nibbles, scales, None, group, k, n)
    other = torch.ops.aten._dyn_quant_matmul_4bit(x, theirs, group, k, n) + bias
    assert error_of(other) <= 0.02
    assert float((got - other).norm() / other.norm()) <= 0.02
