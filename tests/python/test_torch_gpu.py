"""tandem.torch on GPUs, one a rank: results, gradients, streams, captured graphs and compiled models."""

import itertools
import os
import tempfile

import pytest
from test_gpu import num_gpus
from test_torch_llama import check_models, trained
from torch_ranks import caught, check, compiled, needs_torch, random, rounded_product

import tandem

pytestmark = needs_torch


def _rank(rank, size, work, folder):
    import torch
    import torch.distributed as dist

    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/inductor{rank}"  # not found by other ranks
    torch.cuda.set_device(rank)
    store = dist.FileStore(f"{folder}/store", size)
    dist.init_process_group("nccl", store=store, rank=rank, world_size=size, device_id=torch.device("cuda", rank))
    result = work(rank, size)
    torch.cuda.synchronize()
    tandem.torch.close_groups()
    dist.destroy_process_group()
    return result


@pytest.fixture(scope="module")
def run():
    count = min(num_gpus(), 2)
    if count == 0:
        pytest.skip("no GPU that PyTorch can use")

    def on_gpus(work):
        with tempfile.TemporaryDirectory() as folder:
            return tandem.launch(_rank, count, work, folder)

    return on_gpus


def name():
    import torch.distributed as dist

    return dist.group.WORLD.group_name


def same_everywhere(shape, dtype, *seed):
    return random(shape, dtype, *seed).cuda()


def results_and_gradients(rank, size):
    """Both ops and their gradients against PyTorch's autograd of the whole computation in float64."""
    import torch

    for dtype in ("bfloat16", "float16", "float32"):
        for dim, rows, k, n in ((0, 256, 128, 192), (0, 1024, 512, 256), (1, 64, 128, 96)):
            shape = (rows, k) if dim == 0 else (3, rows, k)
            shards = [same_everywhere(shape, dtype, 1, r) for r in range(size)]
            rights = [same_everywhere((k, n), dtype, 2, r) for r in range(size)]
            lefts = [same_everywhere((n, k), dtype, 3, r) for r in range(size)]
            wide = [[t.double().requires_grad_() for t in each] for each in (shards, rights, lefts)]
            whole = torch.cat(wide[0], dim)
            want = sum((whole @ b) @ c for b, c in zip(wide[1], wide[2], strict=True))
            seed = same_everywhere(want.shape, dtype, 4)
            (want * seed.double()).sum().backward()

            a, b, c = (each[rank].clone().requires_grad_() for each in (shards, rights, lefts))
            _, (hidden,) = tandem.torch.fused_all_gather_matmul(a, [b], dim, name())
            got = tandem.torch.fused_matmul_reduce_scatter(hidden, c, "sum", dim, name())
            (got * seed.chunk(size, dim)[rank]).sum().backward()
            for what, one, other in (
                ("result", got, want.chunk(size, dim)[rank]),
                ("a", a.grad, wide[0][rank].grad),
                ("b", b.grad, wide[1][rank].grad),
                ("c", c.grad, wide[2][rank].grad),
            ):
                other = other.detach()
                check(one, other, 4 * other.abs().max() + torch.zeros_like(other), 4, f"{dtype} {shape} {what}")


def test_results_and_gradients(run):
    run(results_and_gradients)


def quantized(rank, size):
    """fp8 products and their gradients: those of the operands as they are."""
    import torch

    t = tandem.torch
    for dtype, quantize in (("bfloat16", torch.float8_e4m3fn), ("float16", torch.float8_e4m3fn)):
        for rows, k, n, return_a in ((64, 128, 64, True), (64, 128, 192, False), (1024, 512, 256, False)):
            where = f"{dtype} {quantize} {rows} {k} {n}"
            shards = [same_everywhere((rows, k), dtype, 1, r) for r in range(size)]
            rights = [same_everywhere((k, n), dtype, 2, r) for r in range(size)]
            lefts = [same_everywhere((size * rows, n), dtype, 3, r) for r in range(size)]
            downs = [same_everywhere((n, k), dtype, 4, r) for r in range(size)]
            a, b, c, d = (each[rank].clone().requires_grad_() for each in (shards, rights, lefts, downs))
            gathers = [
                op(a, [b], 0, name(), return_A=return_a)[1][0]
                for op in (t.fused_all_gather_matmul, t.fused_all_gather_quantized_matmul)
            ]
            scatters = [
                op(c, d, "sum", 0, name())
                for op in (t.fused_matmul_reduce_scatter, t.fused_quantized_matmul_reduce_scatter)
            ]
            gathered, _ = rounded_product(torch.cat(shards), rights[rank], quantize)
            pairs = [rounded_product(*each, quantize)[0] for each in zip(lefts, downs, strict=True)]
            for (plain, got), want, of in (
                (gathers, gathered, (a, b)),
                (scatters, sum(pairs).chunk(size)[rank], (c, d)),
            ):
                # What is left is the rounding of the result. That of the operands is many times as large.
                error, rounding = ((each.detach().double() - want).norm() for each in (got, plain))
                assert error < 0.25 * rounding, f"{where}: {error} of {rounding}"
                seed = same_everywhere(got.shape, dtype, 5)
                grads = [torch.autograd.grad(out, of, seed) for out in (plain, got)]
                for one, other in zip(*grads, strict=True):
                    torch.testing.assert_close(other, one, msg=where)


def test_quantized_products(run):
    run(quantized)


def test_training_in_float8(run, tmp_path):
    ranks = str(min(num_gpus(), 2))
    rows = trained(tmp_path, "--device", "cuda", "--ranks", ranks, "--dtype", "f8e4m3", "--scales", "row")
    check_models(rows, ["bf16 serial", "fp8 row-wise fused"])


def on_streams(rank, size):
    """The current stream is used, and memory that PyTorch gets back is not read any more."""
    import torch

    a = same_everywhere((512, 256), "bfloat16", 1, rank)
    b = same_everywhere((256, 128), "bfloat16", 2)
    whole = torch.cat([same_everywhere((512, 256), "bfloat16", 1, r) for r in range(size)])
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            tandem.torch.fused_all_gather_matmul(a, [b], 0, name())
            torch.cuda.set_sync_debug_mode("error")  # nothing waits for the GPU
            for factor in range(1, 30):
                torch.cuda._sleep(200_000)
                late = a * factor  # not there yet when the op is enqueued
                _, (out,) = tandem.torch.fused_all_gather_matmul(late, [b], 0, name(), return_A=False)
                del late
                torch.empty_like(a).fill_(float("nan"))  # takes its memory
            torch.cuda.set_sync_debug_mode("default")
            stream.synchronize()
            want = (whole * 29).double() @ b.double()
            check(out, want, want.abs().max() + torch.zeros_like(want), 2, str(stream))


def test_streams(run):
    run(on_streams)


def beside(rank, size):
    """Low-contention collectives: values, gradients, and memory that PyTorch gets back before they have run."""
    import torch

    ops, wait = torch.ops.tandem, torch.ops._c10d_functional.wait_tensor
    shapes = ((64, 32), (1024, 512), (3, 16, 8))
    for dtype, shape, dim in itertools.product(("bfloat16", "float32"), shapes, (0, 1, -1)):
        shards = [same_everywhere(shape, dtype, 1, r) for r in range(size)]
        whole, last = torch.cat(shards, dim), dim % len(shape)
        for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                ops.low_contention_all_gather(shards[rank], dim, name())  # not waited for
                results = []
                for factor in range(1, 10):
                    torch.cuda._sleep(200_000)
                    late = shards[rank] * factor  # not there yet when the op is enqueued
                    results.append((factor, ops.low_contention_all_gather(late, dim, name())))
                    del late
                    torch.empty_like(shards[rank]).fill_(float("nan"))  # takes its memory
                for factor, out in results:
                    assert torch.equal(wait(out), whole * factor), (dtype, shape, dim, factor)
                for reduce_op in ("sum", "avg"):
                    got = wait(ops.low_contention_reduce_scatter(whole, reduce_op, dim, name()))
                    assert torch.equal(got, ops.reduce_scatter(whole, reduce_op, last, name())), (dtype, shape, dim)
        leaf, other = (shards[rank].clone().requires_grad_() for _ in range(2))
        wait(ops.low_contention_all_gather(leaf, dim, name())).square().sum().backward()
        ops.all_gather(other, last, name()).square().sum().backward()
        assert torch.equal(leaf.grad, other.grad), (dtype, shape, dim)


def test_low_contention(run):
    run(beside)


def beside_captured(rank, size):
    """A captured gather and scatter beside a product, replayed with other values."""
    import torch

    ops, wait = torch.ops.tandem, torch.ops._c10d_functional.wait_tensor
    x = torch.zeros(256, 512, dtype=torch.bfloat16, device="cuda")
    b = same_everywhere((512, 512), "bfloat16", 2)
    stream = torch.cuda.Stream()

    def step():
        whole = ops.low_contention_all_gather(x, 0, name())
        product = x @ b
        whole = wait(whole)
        shard = ops.low_contention_reduce_scatter(whole, "sum", 0, name())
        return product, whole, wait(shard)

    with torch.cuda.stream(stream):
        step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        results = step()
    for round in range(4):
        x.copy_(same_everywhere((256, 512), "bfloat16", 5, rank, round))
        graph.replay()
        got = [each.clone() for each in results]
        for one, other in zip(got, step(), strict=True):
            assert torch.equal(one, other) and other.abs().max() > 0, round


def test_captured_low_contention(run):
    run(beside_captured)


def captured(rank, size):
    """A captured graph is replayed with other values in the same memory."""
    import torch

    b = same_everywhere((256, 512), "bfloat16", 2, rank)
    c = same_everywhere((512, 128), "bfloat16", 3, rank)
    for rows in (64, 1024):
        x = torch.zeros(rows, 256, dtype=torch.bfloat16, device="cuda")
        stream = torch.cuda.Stream()

        def step(x=x):
            _, (hidden,) = tandem.torch.fused_all_gather_matmul(x, [b], 0, name(), return_A=False)
            return tandem.torch.fused_matmul_reduce_scatter(torch.relu(hidden), c, "sum", 0, name())

        with torch.cuda.stream(stream):
            step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            y = step()
        for round in range(4):
            shards = [same_everywhere((rows, 256), "bfloat16", 5, r, round) for r in range(size)]
            x.copy_(shards[rank])
            graph.replay()
            got = y.clone()
            want = step()
            torch.cuda.synchronize()
            wide = want.double()
            check(got, wide, wide.abs().max() + torch.zeros_like(wide), 2, f"{rows} rows, replay {round}")
            assert wide.abs().max() > 0


def test_captured_graphs(run):
    run(captured)


def model_on(size):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(0)
    layers = torch.nn.Linear(256, 1024, bias=False), torch.nn.SiLU(), torch.nn.Linear(1024, 256, bias=False)
    model = torch.nn.Sequential(*layers).cuda().bfloat16()
    plan = {"0": ColwiseParallel(input_layouts=Shard(0)), "2": RowwiseParallel(output_layouts=Shard(0))}
    return parallelize_module(model, init_device_mesh("cuda", (size,)), plan)


def compiles(rank, size):
    import torch

    fusion = tandem.torch.fusion_pass(strict=True)
    results = []
    for fused in (False, True):
        model = model_on(size)
        step = compiled(model, options={"post_grad_custom_pre_pass": fusion}) if fused else model
        x = same_everywhere((512, 256), "bfloat16", 7, rank).requires_grad_()
        y = step(x)
        y.float().square().mean().backward()
        results.append([y, x.grad, *(parameter.grad.to_local() for parameter in model.parameters())])
    for i, (want, got) in enumerate(zip(*results, strict=True)):
        wide = want.detach().double()
        check(got, wide, wide.abs().max() + torch.zeros_like(wide), 8, f"result {i}")
    return {passed.name: passed.report.fused for passed in fusion.graphs}


def test_compiled_model(run):
    gather, scatter = "symm_mem.fused_all_gather_matmul.default", "symm_mem.fused_matmul_reduce_scatter.default"
    for fused in run(compiles):
        assert [*fused.values()] == [{gather: 1, scatter: 1}] * 2


def misused(rank, size):
    import torch

    a, b = same_everywhere((64, 32), "bfloat16", 1), same_everywhere((32, 16), "bfloat16", 2)
    t = tandem.torch
    f8 = a.to(torch.float8_e4m3fn)
    one, three = torch.ones((), device="cuda"), torch.ones(3, device="cuda")
    lists = ([None], [None], [torch.bfloat16], [False])
    scaled = (f8, [b.to(torch.float8_e4m3fn).t().contiguous().t()], three, [one], 0, name(), *lists)
    for call, arguments in (
        (t.fused_all_gather_matmul, (a, [b.cpu()], 0, name())),
        (t.fused_all_gather_matmul, (a, [b.float()], 0, name())),
        (t.fused_matmul_reduce_scatter, (a, b, "max", 0, name())),
        (t.fused_all_gather_scaled_matmul, scaled),
    ):
        error = caught(call, *arguments)
        assert error.code in (tandem.ErrorCode.INVALID_ARGUMENT, tandem.ErrorCode.UNSUPPORTED), error
    _, (out,) = t.fused_all_gather_matmul(a, [b], 0, name())
    assert out.shape == (64 * size, 16)


def test_misuse(run):
    run(misused)
