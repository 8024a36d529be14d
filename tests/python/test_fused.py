"""Each fused op against float64, on 1 to 4 CPU ranks."""

import itertools

import numpy
import pytest
from reference import BF16, E4M3, E5M2, F16, F32, check, in_other_order, product, random, shard, with_holes

import tandem

WORLDS = [1, 2, 3, 4]


def all_gather_matmul(rank, size):
    tandem.init()
    for dtype, dim, algorithm in itertools.product((F32, BF16, F16), (0, 1, 2), ("auto", "serial", "pipelined")):
        where = f"{dtype} dim {dim} {algorithm}"
        whole = random((5, 7, 11), dtype, 1)
        a = shard(whole, dim, size, rank)
        full_b = random((11, 6), dtype, 2)
        bs = [full_b, in_other_order(full_b[:, :4]), with_holes(full_b)]
        bias = [random((b.shape[1],), dtype, 3) for b in bs]
        result = tandem.fused_all_gather_matmul(
            a, bs, dim, whole.shape[dim], bias=bias, gathered=True, algorithm=algorithm
        )
        assert len(result.out) == 3 and result.report.algorithm in ("native", "serial", "pipelined")
        assert algorithm in ("auto", result.report.algorithm), where
        assert (result.gathered == whole).all(), where
        for out, b, c in zip(result.out, bs, bias, strict=True):
            assert out.dtype == dtype
            want, magnitude = product(whole, b)
            check(out, want + c.astype(numpy.float64), magnitude + 1, where=where)

    # Shards as views with strides, and outputs of the caller.
    whole = random((12, 8), F32, 4)
    a = with_holes(shard(whole, 0, size, rank))
    b = random((8, 5), F32, 5)
    out = numpy.full((12, 5), numpy.nan, F32)
    result = tandem.fused_all_gather_matmul(a, b, gather_size=12, out=out)
    assert result.out[0] is out and result.gathered is None
    check(out, *product(whole, b))


def batch_invariant(rank, size):
    tandem.init(batch_invariant=True)
    a, b = random((130, 24), BF16, 1, rank), random((24, 16), BF16, 2, rank)
    whole = tandem.fused_matmul_all_reduce(a, b)
    assert "batch invariant" in whole.report.reason
    for rows in (1, 2, 7, 64):
        assert (tandem.fused_matmul_all_reduce(a[-rows:], b).out == whole.out[-rows:]).all()
    tandem.finalize()

    tandem.init(name="other", batch_invariant=rank == 0)
    with pytest.raises(tandem.Error, match="batch invariant"):
        tandem.fused_matmul_all_reduce(a, b)


@pytest.mark.parametrize("world", [2, 3])
def test_batch_invariant(world):
    tandem.launch(batch_invariant, world)


def nan_check(rank, size):
    group = tandem.init(nan_check=True)
    assert group.nan_check
    a, b = random((6, 8), F32, 1, rank), random((8, 4), F32, 2)
    assert tandem.fused_all_gather_matmul(a, b, gather_size=6 * size).report.checks_nan
    group.nan_check = False
    bad = a.copy()
    bad[2, 3] = numpy.nan if rank == 1 else 0
    assert not tandem.fused_all_gather_matmul(bad, b, gather_size=6 * size).report.checks_nan
    group.nan_check = True
    group.meet()  # a rank that was still in the call before would hear of the NaN there
    found = r"rank 1: all_gather_matmul .* a has 1 NaN, at element 19 \(\[2, 3\]\)"
    with pytest.raises(tandem.Error, match=found) as error:
        tandem.fused_all_gather_matmul(bad, b, gather_size=6 * size)
    assert error.value.code == tandem.ErrorCode.NUMERIC


@pytest.mark.parametrize("world", [2, 3])
def test_nan_check(world):
    tandem.launch(nan_check, world)


def matmul_reduce_scatter(rank, size):
    tandem.init()
    for dtype, dim, reduce_op in itertools.product((F32, BF16, F16), (0, 1, 2), ("sum", "avg")):
        where = f"{dtype} dim {dim} {reduce_op}"
        lefts = [random((5, 7, 11), dtype, 1, r) for r in range(size)]
        rights = [random((11, 6), dtype, 2, r) for r in range(size)]
        pairs = [product(a, b) for a, b in zip(lefts, rights, strict=True)]
        factor = 1 / size if reduce_op == "avg" else 1
        want = factor * sum(value for value, _ in pairs)
        magnitude = sum(largest for _, largest in pairs)
        a, b = with_holes(lefts[rank]), in_other_order(rights[rank])
        bias = random((6,), dtype, 3)
        result = tandem.fused_matmul_reduce_scatter(a, b, dim, reduce_op, bias=bias, product=True, partials="f32")
        want = want + bias.astype(numpy.float64)
        check(result.out, shard(want, dim, size, rank), shard(magnitude, dim, size, rank) + 1, where=where)
        check(result.product, *pairs[rank], where=where)

    # Two products, summed; an output of the caller.
    lefts = [random((6, 4 + j), F32, 6, rank, j) for j in range(2)]
    rights = [random((4 + j, 3), F32, 7, rank, j) for j in range(2)]
    out = numpy.full((tandem.shard_of(6, size, rank).size, 3), numpy.nan, F32)
    result = tandem.fused_matmul_reduce_scatter(lefts, rights, out=out)
    assert result.out is out and result.product is None
    pairs = [product(random((6, 4 + j), F32, 6, r, j), random((4 + j, 3), F32, 7, r, j))
             for r in range(size) for j in range(2)]
    check(out, *(shard(sum(part), 0, size, rank) for part in zip(*pairs, strict=True)))


def matmul_all_reduce(rank, size):
    tandem.init()
    for dtype, reduce_op, algorithm in itertools.product((F32, BF16, F16), ("sum", "avg"), ("serial", "pipelined")):
        where = f"{dtype} {reduce_op} {algorithm}"
        lefts = [random((5, 7, 11), dtype, 1, r) for r in range(size)]
        rights = [random((11, 6), dtype, 2, r) for r in range(size)]
        pairs = [product(a, b) for a, b in zip(lefts, rights, strict=True)]
        want = sum(value for value, _ in pairs) / (size if reduce_op == "avg" else 1)
        magnitude = sum(largest for _, largest in pairs)
        a, b = with_holes(lefts[rank]), in_other_order(rights[rank])
        bias = random((6,), dtype, 3)
        result = tandem.fused_matmul_all_reduce(
            a, b, reduce_op, bias=bias, product=True, partials="f32", algorithm=algorithm
        )
        assert result.report.algorithm == algorithm and result.out.dtype == dtype
        check(result.out, want + bias.astype(numpy.float64), magnitude + 1, where=where)
        check(result.product, *pairs[rank], where=where)

    # Two products, whose rows are no matrix in memory, summed; an output of the caller.
    lefts = [random((3, 2, 4 + j), F32, 6, rank, j) for j in range(2)]
    rights = [random((4 + j, 3), F32, 7, rank, j) for j in range(2)]
    out = numpy.full((2, 3, 3), numpy.nan, F32)
    result = tandem.fused_matmul_all_reduce([a.transpose(1, 0, 2) for a in lefts], rights, out=out)
    assert result.out is out and result.product is None
    pairs = [
        product(random((3, 2, 4 + j), F32, 6, r, j).transpose(1, 0, 2), random((4 + j, 3), F32, 7, r, j))
        for r in range(size)
        for j in range(2)
    ]
    check(out, *(sum(part) for part in zip(*pairs, strict=True)))


def scaled_matmul_all_reduce(rank, size):
    tandem.init()
    for reduce_op in ("sum", "avg"):
        lefts = [random((3, 5, 16), E4M3, 1, r) for r in range(size)]
        rights = [random((16, 6), E5M2, 2, r) for r in range(size)]
        scale = numpy.abs(random((3, 5, 1), F32, 3)) + 0.5
        pairs = [product(a, b) for a, b in zip(lefts, rights, strict=True)]
        factor = 2.0 * scale.astype(numpy.float64) / (size if reduce_op == "avg" else 1)
        result = tandem.fused_scaled_matmul_all_reduce(
            lefts[rank], rights[rank], scale, numpy.full((1, 6), 2.0, F32), reduce_op, out_dtype="f32", partials="f32"
        )
        check(result.out, factor * sum(value for value, _ in pairs), factor * sum(most for _, most in pairs))


def all_gather_scaled_matmul(rank, size):
    tandem.init()
    for dtype, dim, mode in itertools.product((E4M3, E5M2), (0, 1), ("tensorwise", "rowwise_sharded", "none")):
        where = f"{dtype} dim {dim} {mode}"
        whole = random((4, 8, 16), dtype, 1)
        a = shard(whole, dim, size, rank)
        bs = [in_other_order(random((16, 6), dtype, 2)), random((16, 3), E4M3, 3)]
        rows = numpy.abs(random((4, 8, 1), F32, 4)) + 0.5
        scale = {"tensorwise": numpy.full(1, 0.25, F32), "rowwise_sharded": shard(rows, dim, size, rank), "none": None}
        full_scale = {"tensorwise": 0.25, "rowwise_sharded": rows.astype(numpy.float64), "none": 1.0}
        b_scales = None if mode == "none" else [numpy.full(1, 2.0, F32)] * 2
        result = tandem.fused_all_gather_scaled_matmul(
            a,
            bs,
            scale[mode],
            b_scales,
            dim,
            whole.shape[dim],
            out_dtype=[BF16, "f32"],
            scale_mode=mode,
            bias=[None, random((3,), F32, 5)],
            gathered=True,
            also_gather=[shard(rows, dim, size, rank)],
        )
        assert (result.gathered == whole).all() and (result.also_gathered[0] == rows).all()
        assert [out.dtype for out in result.out] == [BF16, F32]
        factor = full_scale[mode] * (1 if mode == "none" else 2.0)
        for i, (out, b) in enumerate(zip(result.out, bs, strict=True)):
            want, magnitude = product(whole, b)
            bias = random((3,), F32, 5).astype(numpy.float64) if i else 0.0
            check(out, want * factor + bias, magnitude * factor + 1, where=where)


def all_gather_block_scaled_matmul(rank, size):
    tandem.init()
    for dim, replicated in itertools.product((0, 1), (False, True)):
        whole = random((4, 8, 200), E4M3, 1)
        scale = numpy.abs(random((4, 8, 2), F32, 4)) + 0.5
        b = random((200, 130), E4M3, 2)
        b_scale = numpy.abs(random((2, 2), F32, 5)) + 0.5
        result = tandem.fused_all_gather_block_scaled_matmul(
            shard(whole, dim, size, rank),
            b,
            scale if replicated else shard(scale, dim, size, rank),
            b_scale,
            dim,
            whole.shape[dim],
            out_dtype="f32",
            replicated=replicated,
        )
        want, magnitude = product(
            whole.astype(numpy.float64) * scale.repeat(128, -1)[..., :200],
            b.astype(numpy.float64) * b_scale.repeat(128, 0)[:200].repeat(128, 1)[:, :130],
        )
        check(result.out[0], want, magnitude, where=f"dim {dim} replicated {replicated}")


def quantized_all_gather_scaled_matmul(rank, size):
    tandem.init()
    for dim, mode in itertools.product((0, 1), ("detect", "rowwise_sharded", "blockwise_sharded")):
        block = mode == "blockwise_sharded"
        whole = random((4, 8, 200), BF16, 1)
        b, b_scale = random((200, 6), E4M3, 2), numpy.full((2 if block else 1, 6), 0.5, F32)
        result = tandem.fused_all_gather_scaled_matmul(
            shard(whole, dim, size, rank),
            b,
            None,
            b_scale,
            dim,
            whole.shape[dim],
            out_dtype="f32",
            scale_mode=mode,
            quantize="f8e4m3",
            gathered=True,
        )
        assert result.gathered.dtype == BF16 and (result.gathered == whole).all()
        a, a_scale = tandem.quantize_rows(whole, block=block)
        assert (result.out[0] == tandem.scaled_matmul(a, b, a_scale, b_scale, out_dtype="f32")).all(), f"{dim} {mode}"


def scaled_matmul_reduce_scatter(rank, size):
    tandem.init()
    for dim, out_dtype in itertools.product((0, 1, 2), (BF16, F32)):
        where = f"dim {dim} {out_dtype}"
        lefts = [random((4, 8, 16), E4M3, 1, r) for r in range(size)]
        rights = [random((16, 6), E4M3, 2, r) for r in range(size)]
        scales = [numpy.full(1, 0.5 + r, F32) for r in range(size)]
        result = tandem.fused_scaled_matmul_reduce_scatter(
            lefts[rank],
            rights[rank],
            scales[rank],
            numpy.full((1, 6), 0.5, F32),
            dim,
            "avg",
            out_dtype=out_dtype,
            partials="f32",
            product=True,
        )
        pairs = [product(a, b) for a, b in zip(lefts, rights, strict=True)]
        factors = [0.5 * (0.5 + r) for r in range(size)]
        want = sum(f * value for f, (value, _) in zip(factors, pairs, strict=True)) / size
        magnitude = sum(f * largest for f, (_, largest) in zip(factors, pairs, strict=True))
        assert result.out.dtype == out_dtype
        check(result.out, shard(want, dim, size, rank), shard(magnitude, dim, size, rank), where=where)
        check(result.product, factors[rank] * pairs[rank][0], factors[rank] * pairs[rank][1], where=where)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(
    "program",
    [
        all_gather_matmul,
        matmul_reduce_scatter,
        matmul_all_reduce,
        all_gather_scaled_matmul,
        all_gather_block_scaled_matmul,
        quantized_all_gather_scaled_matmul,
        scaled_matmul_reduce_scatter,
        scaled_matmul_all_reduce,
    ],
)
def test_against_float64(program, world):
    tandem.launch(program, world)


def same_bits(rank, size):
    tandem.init()
    a = shard(random((9, 32), BF16, 1), 0, size, rank)
    report = tandem.fused_all_gather_matmul(a, random((32, 8), BF16, 2), gather_size=9).report
    assert report.reason and report.program and report.key.startswith("all_gather_matmul 9x8x32 bf16")
    assert report.candidates and {one.algorithm for one in report.candidates} <= {"native", "serial", "pipelined"}
    return tandem.fused_all_gather_matmul(a, random((32, 8), BF16, 2), gather_size=9).out[0]


def test_any_number_of_ranks_gives_the_same_bits():
    results = [out for world in (1, 3) for out in tandem.launch(same_bits, world)]
    assert all((out == results[0]).all() for out in results)
