"""Process groups and their tandem groups, and misuse: each a clear exception on every rank."""

import functools
import os

import pytest
from torch_ranks import caught, needs_torch, random, run, world

import tandem
from tandem import ErrorCode

pytestmark = needs_torch


def groups(rank, size):
    import torch
    import torch.distributed as dist

    made = tandem.torch.group_of(dist.group.WORLD)
    assert tandem.torch.group_of(world(), torch.device("cpu")) is made
    assert (made.rank, made.size) == (rank, size)
    alone = [dist.new_group([r]) for r in range(size)][rank]
    turned = dist.new_group([1, 0]) if size == 2 else alone
    a, b = random([2, 4], "float32", rank), random([4, 3], "float32", 9)
    for group in (dist.group.WORLD, alone, turned):
        whole, _ = tandem.torch.fused_all_gather_matmul(a, [b], 0, group)
        ranks = dist.get_process_group_ranks(group)
        assert torch.equal(whole, torch.cat([random([2, 4], "float32", r) for r in ranks]))

    # A process group of the same name, in the same store, after the first was destroyed.
    name, store = world(), dist.distributed_c10d._get_default_store()
    dist.barrier()
    dist.destroy_process_group()
    assert caught(tandem.torch.group_of, name).code is ErrorCode.INVALID_ARGUMENT
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    assert world() == name
    assert tandem.torch.group_of(world()) is not made
    assert tandem.torch.fused_all_gather_matmul(a, [b], 0, world())[0].shape == (2 * size, 4)


def fakes(rank, size):
    """A fake tensor needs no tandem group, and takes no part in a call."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from tandem.torch import _groups

    tandem.torch.close_groups()
    with FakeTensorMode():
        a, b = torch.empty(2, 4), torch.empty(4, 3)
        whole, (out,) = tandem.torch.fused_all_gather_matmul(a, [b], 0, world())
        assert (whole.shape, out.shape) == ((2 * size, 4), (2 * size, 3))
        error = caught(tandem.torch.fused_all_gather_matmul, a, [b.double()], 0, world())
        assert "Bs[0] is of type torch.float64" in error.text
    assert not _groups._made


def misuse(rank, size):
    import torch

    t = tandem.torch
    a, b, name = torch.zeros(4, 8), torch.zeros(8, 6), world()
    f8 = torch.zeros(4, 8).to(torch.float8_e4m3fn)
    one, words = torch.tensor(1.0), torch.ones(2, dtype=torch.uint32)
    lists = ([None], [None], [torch.bfloat16], [False])
    cases = [
        (t.fused_all_gather_matmul, (a, [b], 2, name), "gather_dim is 2, need 0 to 1"),
        (t.fused_all_gather_matmul, (a, [b], -1, name), "gather_dim is -1, need 0 to 1"),
        (t.fused_all_gather_matmul, (a, [b.double()], 0, name), "Bs[0] is of type torch.float64, need float32, bfloat16"),
        (t.fused_all_gather_matmul, (a, [b.bfloat16()], 0, name), "bfloat16"),
        (t.fused_all_gather_matmul, (a.int(), [b.int()], 0, name), "A is of type torch.int32"),
        (t.fused_all_gather_matmul, (a, [b[:7]], 0, name), "[7, 6], need [8, n]"),
        (t.fused_all_gather_matmul, (a, [], 0, name), "Bs is empty"),
        (t.fused_all_gather_matmul, (a[0], [b], 0, name), "[8]"),
        (t.fused_all_gather_matmul, (a, [b], 0, "nobody"), "no process group 'nobody'"),
        (t.fused_matmul_reduce_scatter, (a, b, "max", 0, name), "'max', need sum or avg"),
        (t.fused_matmul_reduce_scatter, (a, b, "sum", 2, name), "scatter_dim is 2, need 0 to 1"),
        (t.fused_matmul_reduce_scatter, (a, b[:7], "sum", 0, name), "B has sizes [7, 6], need [8, n]"),
        (t.fused_matmuls_reduce_scatter, ([a], [b, b], "sum", 0, name), "2"),
        (t.fused_matmuls_reduce_scatter, ([], [], "sum", 0, name), "As is empty"),
        (t.fused_all_gather_scaled_matmul, (a, [b], one, [one], 0, name, *lists), "A is of type torch.float32, need float8_e4m3fn"),
        (t.fused_all_gather_scaled_matmul, (f8, [f8.t()], one, [], 0, name, *lists), "B_scales has 0 elements"),
        (t.fused_all_gather_scaled_matmul, (f8, [f8.t()], one, [one], 0, name, [], *lists[1:]), "biases has 0"),
        (t.fused_all_gather_scaled_matmul, (f8, [f8.t()], one[None].expand(3), [one], 0, name, *lists), "[3]"),
        (t.fused_scaled_matmul_reduce_scatter, (f8, f8.t(), one, one, "sum", 0, 0, name, [3, 4]), "need 3 rows"),
        (t.fused_scaled_matmul_reduce_scatter, (f8, f8.t(), one, one, "sum", 0, 3, name, [4, 4]), "need 0 to 1"),
        (t.async_input_mm, (a, b, words, 2), "a_chunk_pivot is 2, need 0 to 1"),
        (t.async_input_mm, (a, b, words.int(), 0), "need uint32"),
        (t.async_input_mm, (a, a, words, 0), "need [m, k] and [k, n]"),
    ]
    wrong = functools.partial(t.fused_all_gather_quantized_matmul, quantize=torch.bfloat16)
    wrong_scatter = functools.partial(t.fused_quantized_matmul_reduce_scatter, quantize=torch.bfloat16)
    cases += [
        (t.fused_all_gather_quantized_matmul, (f8, [b], 0, name), "A is of type torch.float8_e4m3fn, need float32"),
        (t.fused_all_gather_quantized_matmul, (a, [torch.zeros(8 * size, 6)], 1, name), "is 1, the last of A"),
        (wrong, (a, [b], 0, name), "quantize is torch.bfloat16, need torch.float8_e4m3fn"),
        (wrong_scatter, (a, b, "sum", 0, name), "quantize is torch.bfloat16, need torch.float8_e4m3fn"),
        (t.fused_quantized_matmul_reduce_scatter, (a, b[:7], "sum", 0, name), "B has sizes [7, 6], need [8, n]"),
    ]
    if size > 1:
        cases.append((t.fused_matmul_reduce_scatter, (a[:3], b, "sum", 0, name), "size 3, need a multiple"))
    for call, args, text in cases:
        error = caught(call, *args)
        assert error.code is ErrorCode.INVALID_ARGUMENT and text in error.text, (call, text, error)
    for wrong in (3, None):
        with pytest.raises(TypeError, match="need a ProcessGroup or its name"):
            t.fused_all_gather_matmul(a, [b], 0, wrong)
    # Nothing was harmed.
    assert t.fused_all_gather_matmul(a, [b], 0, name)[1][0].shape == (4 * size, 6)


def misuse_on_one(rank, size):
    """The other rank hears of it at once."""
    a, b = random([4, 8], "float32", 1), random([8, 6], "float32", 2)
    error = caught(tandem.torch.fused_all_gather_matmul, a, [b], 0 if rank == 0 else 7, world())
    assert error.code is (ErrorCode.MISMATCH if rank == 0 else ErrorCode.INVALID_ARGUMENT), error


@pytest.mark.parametrize("size", [1, 2])
def test_groups_and_misuse(size):
    def work(rank, size):
        for each in (misuse, groups, fakes):
            each(rank, size)

    run(work, size)


def test_misuse_on_one_rank():
    run(misuse_on_one, 2)


def other_host(rank, size):
    from tandem.torch import _groups

    _groups._host = lambda: f"host {rank}"
    error = caught(tandem.torch.group_of, world())
    assert error.code is ErrorCode.UNSUPPORTED
    assert error.text == f"process group '{world()}': ranks {rank} and {1 - rank} are on different hosts, need one host"


def absent(rank, size):
    if rank == 0:
        os.environ["TANDEM_RENDEZVOUS_TIMEOUT_MS"] = "500"
        error = caught(tandem.torch.group_of, world())
        assert error.code is ErrorCode.TIMEOUT and "rank 0 waited 0.5 s" in error.text and "rank 1" in error.text


@pytest.mark.parametrize("work", [other_host, absent], ids=["other_host", "absent"])
def test_no_group(work):
    run(work, 2)
