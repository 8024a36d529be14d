"""Symmetric memory from Python."""

import numpy
import pytest
from reference import BF16

import tandem


def memory(rank, size):
    group = tandem.init()
    tensor = tandem.symm.empty((4, 3), numpy.float32)
    assert isinstance(tensor, numpy.ndarray) and (tensor == 0).all()
    handle = tandem.symm.rendezvous(tensor)
    assert (handle.rank, handle.world_size) == (rank, size) and handle.buffer_size_bytes >= 48
    tensor[...] = rank
    handle.barrier()
    for peer in range(size):
        assert (handle.buffer(peer, (4, 3), "f32") == peer).all()
        assert (handle.remote_tensor(peer, [12], numpy.float32) == peer).all()
        copy = numpy.empty((2, 3), numpy.float32)
        handle.get(copy, peer, 3)
        assert (copy == peer).all()
    handle.barrier()
    right = (rank + 1) % size
    handle.put(numpy.full(3, 100.0 + rank, numpy.float32), right, 9)
    handle.put_signal(right)
    handle.wait_signal((rank - 1) % size)
    assert (tensor[3] == 100 + (rank - 1) % size).all() and (tensor[:3] == rank).all()
    assert (handle.signal_pad(rank) == 0).all() and handle.num_channels > tandem.symm.FIRST_USER_CHANNEL

    again = tandem.symm.rendezvous(tensor)
    part = tandem.symm.rendezvous(tensor[2:])
    assert again.core is not None and part.core.offset_bytes == 24
    assert (part.remote_tensor(rank, [3], "f32") == rank).all()

    # The shard of a fused op, read in place.
    shard = tandem.symm.empty((2, 8), BF16)
    shard[...] = rank + 1
    a_handle = tandem.symm.rendezvous(shard)
    b = numpy.ones((8, 4), BF16)
    out = tandem.fused_all_gather_matmul(shard, b, a_handle=a_handle, algorithm="pipelined").out[0]
    assert (out == numpy.repeat(8.0 * numpy.arange(1, size + 1), 2)[:, None]).all()

    # On a stream of one's own, nothing waits until synchronize().
    stream = group.create_stream()
    handle.barrier(stream=stream)
    stream.synchronize()
    with pytest.raises(tandem.Error, match="rank"):
        handle.buffer(size, (1,), "f32")
    with pytest.raises(tandem.Error, match="bytes"):
        handle.buffer(0, (1 << 20,), "f64")
    kept = handle.buffer(right, (4, 3), "f32")
    del tensor, handle, again, part
    assert kept.shape == (4, 3) and kept[0, 0] == right  # the view keeps the memory
    group.meet()


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_memory(world):
    tandem.launch(memory, world)


def lonely(rank, size):
    tandem.init(op_timeout=0.3)
    handle = tandem.symm.rendezvous(tandem.symm.empty(4))
    if rank == 1:
        tandem.default_group().meet()
        return None
    with pytest.raises(tandem.Error) as caught:
        handle.wait_signal(1)
    error = caught.value
    with pytest.raises(tandem.Error):
        tandem.default_group().meet()
    return error.code.name, error.rank, error.peer


def test_a_signal_that_does_not_come():
    def work(rank, size):
        try:
            return lonely(rank, size)
        except tandem.Error as error:
            return error.code.name, error.rank, error.peer

    results = tandem.launch(work, 2)
    assert results[0] == ("TIMEOUT", 0, 1) and results[1][0] == "TIMEOUT"
