"""The collectives against NumPy, on 1 to 4 CPU ranks."""

import numpy
import pytest
from reference import BF16, F32, check, random, shard

import tandem


def collectives(rank, size):
    group = tandem.init()
    for dtype in (F32, BF16, numpy.dtype("int64")):
        whole = (random((7, 3), F32, 1) * 100).astype(dtype)
        mine = shard(whole, 0, size, rank)
        assert (tandem.all_gather(mine, 7) == whole).all()
        out = numpy.zeros((7, 3), dtype)
        assert tandem.all_gather(mine, out=out, total=7) is out and (out == whole).all()

    inputs = [random((7, 3), BF16, 2, r) for r in range(size)]
    want = sum(each.astype(numpy.float64) for each in inputs)
    magnitude = sum(numpy.abs(each.astype(numpy.float64)) for each in inputs)
    got = tandem.reduce_scatter(inputs[rank])
    check(got, shard(want, 0, size, rank), shard(magnitude, 0, size, rank))
    wide = numpy.zeros((tandem.shard_of(7, size, rank).size, 6), F32)[:, ::2]
    bias = random((3,), F32, 3)
    tandem.reduce_scatter(inputs[rank], "avg", bias=bias, out=wide)
    check(wide, shard(want / size, 0, size, rank) + bias, shard(magnitude, 0, size, rank) + 1)

    for dim in (0, 1):
        mine = shard(whole, dim, size, rank)
        got = tandem.low_contention_all_gather(mine, whole.shape[dim], gather_dim=dim)
        assert (got == whole).all()
        part = shard(want, dim, size, rank)
        got = tandem.low_contention_reduce_scatter(inputs[rank], "avg", scatter_dim=dim)
        check(got, part / size, shard(magnitude, dim, size, rank))
    stream = group.create_stream()
    got = tandem.low_contention_all_gather(shard(whole, 0, size, rank), whole.shape[0], stream=stream)
    event = stream.record()
    tandem.all_gather(shard(whole, 0, size, rank), whole.shape[0], stream=stream)
    event.synchronize()
    assert event.is_done and (got == whole).all()
    stream.synchronize()
    got = tandem.low_contention_reduce_scatter(inputs[rank])
    assert got.tobytes() == tandem.reduce_scatter(inputs[rank]).tobytes()
    assert tandem.low_contention_barriers() == "cores"

    check(tandem.all_reduce(inputs[rank]), want, magnitude)
    out = numpy.zeros((7, 3), F32)
    assert tandem.all_reduce(inputs[rank], "avg", bias=bias, out=out) is out
    check(out, want / size + bias, magnitude + 1)

    stack = random((size, 4, 3), F32, 4)
    check(tandem.reduce_stack(stack, "avg"), stack.astype(numpy.float64).mean(0), numpy.abs(stack).sum(0))

    tensor = tandem.symm.empty((4, 3), "f32")
    tensor[...] = rank
    handle = tandem.symm.rendezvous(tensor)
    got = tandem.low_contention_all_gather(tensor, input_handle=handle)
    assert (got == numpy.repeat(numpy.arange(size), 4)[:, None]).all()
    progress = numpy.zeros(2 * size, numpy.uint32)
    got = tandem.all_gather_with_progress(tensor, handle, progress, 2)
    assert (progress == 1).all() and (got == numpy.repeat(numpy.arange(size), 4)[:, None]).all()
    group.meet()


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_collectives(world):
    tandem.launch(collectives, world)
