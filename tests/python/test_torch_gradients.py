"""Gradients of the ops against PyTorch's autograd of the decomposed computation in float64, and compiled programs."""

import itertools

import pytest
from torch_ranks import TYPES, WORLDS, caught, check, needs_torch, random, run, world

import tandem

pytestmark = needs_torch


def leaves(tensors):
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


def wide(tensors):
    return [tensor.detach().double().requires_grad_() for tensor in tensors]


def magnitudes(tensors):
    return [tensor.detach().double().abs().requires_grad_() for tensor in tensors]


def decomposed_gather(a, bs, seeds, whole_seeds, dim):
    """The gradients of all ranks' shards `a` and of each rank's `bs`, with gradients `seeds` of the results."""
    import torch

    whole = torch.cat(a, dim)
    loss = torch.zeros((), dtype=torch.float64)
    for rights, grads, whole_grad in zip(bs, seeds, whole_seeds, strict=True):
        loss = loss + sum(((whole @ b) * grad).sum() for b, grad in zip(rights, grads, strict=True))
        if whole_grad is not None:
            loss = loss + (whole * whole_grad).sum()
    loss.backward()


def gathers(rank, size):
    for dtype, dim, return_a in itertools.product(TYPES, (0, 1, 2), (True, False)):
        where = f"{dtype} dim {dim} return_A {return_a}"
        shape, k = [4, 6, 8], 8 * size if dim == 2 else 8
        full = [n * size if d == dim else n for d, n in enumerate(shape)]
        rows = shape[:2] if dim == 2 else full[:2]
        a = [random(shape, dtype, 1, r) for r in range(size)]
        bs = [[random([k, n], dtype, 2, r, n) for n in (5, 3)] for r in range(size)]
        seeds = [[random([*rows, n], dtype, 3, r, n) for n in (5, 3)] for r in range(size)]
        whole_seeds = [random(full, dtype, 4, r) if return_a else None for r in range(size)]

        want = {}
        for kind in (wide, magnitudes):  # the second gives what errors are relative to
            want[kind] = kind(a), [kind(rights) for rights in bs]
            grads = [[g.detach() for g in kind(each)] for each in seeds]
            whole_grads = [None if g is None else kind([g])[0].detach() for g in whole_seeds]
            decomposed_gather(*want[kind], grads, whole_grads, dim)

        (mine,), rights = leaves([a[rank]]), leaves(bs[rank])
        whole, outs = tandem.torch.fused_all_gather_matmul(mine, rights, dim, world(), return_A=return_a)
        loss = sum((out * seed).sum() for out, seed in zip(outs, seeds[rank], strict=True))
        (loss + (whole * whole_seeds[rank]).sum() if return_a else loss).backward()
        check(mine.grad, want[wide][0][rank].grad, want[magnitudes][0][rank].grad, 3, f"{where} A")
        for i, b in enumerate(rights):
            check(b.grad, want[wide][1][rank][i].grad, want[magnitudes][1][rank][i].grad, 1, f"{where} B{i}")


def scatters(rank, size):
    import torch

    for dtype, dim, reduce_op in itertools.product(TYPES, (0, 1, 2), ("sum", "avg")):
        where = f"{dtype} dim {dim} {reduce_op}"
        lefts = [random([4, 2, 8], dtype, 1, r) for r in range(size)]
        rights = [random([8, 6], dtype, 2, r) for r in range(size)]
        parts = [n // size if d == dim else n for d, n in enumerate((4, 2, 6))]
        seeds = [random(parts, dtype, 3, r) for r in range(size)]

        want = {}
        for kind in (wide, magnitudes):
            want[kind] = kind(lefts), kind(rights)
            total = sum(a @ b for a, b in zip(*want[kind], strict=True)) / (size if reduce_op == "avg" else 1)
            (total * torch.cat([g.detach() for g in kind(seeds)], dim)).sum().backward()

        for several in (False, True):
            a, b = leaves([lefts[rank], rights[rank]])
            if several:
                halves = (a[..., :4], a[..., 4:]), (b[:4], b[4:])
                out, _ = tandem.torch.fused_matmuls_reduce_scatter(*halves, reduce_op, dim, world())
            else:
                out = tandem.torch.fused_matmul_reduce_scatter(a, b, reduce_op, dim, world())
            (out * seeds[rank]).sum().backward()
            check(a.grad, want[wide][0][rank].grad, want[magnitudes][0][rank].grad, 2, f"{where} A")
            check(b.grad, want[wide][1][rank].grad, want[magnitudes][1][rank].grad, 2, f"{where} B")


def all_reduces(rank, size):
    """Each rank's result has a gradient of its own, whose sum is that of the sum of all ranks' losses."""
    for dtype, reduce_op in itertools.product(TYPES, ("sum", "avg")):
        where = f"{dtype} {reduce_op}"
        lefts = [random([4, 2, 8], dtype, 1, r) for r in range(size)]
        rights = [random([8, 6], dtype, 2, r) for r in range(size)]
        seeds = [random([4, 2, 6], dtype, 3, r) for r in range(size)]
        added = random([6], dtype, 4)

        want = {}
        for kind in (wide, magnitudes):
            want[kind] = kind(lefts), kind(rights)
            total = sum(a @ b for a, b in zip(*want[kind], strict=True)) / (size if reduce_op == "avg" else 1)
            (total * sum(seed.detach() for seed in kind(seeds))).sum().backward()

        for several in (False, True):
            a, b, bias = leaves([lefts[rank], rights[rank], added])
            if several:
                halves = (a[..., :4], a[..., 4:]), (b[:4], b[4:])
                out, _ = tandem.torch.fused_matmuls_all_reduce(*halves, reduce_op, world(), bias)
            else:
                out = tandem.torch.fused_matmul_all_reduce(a, b, reduce_op, world(), bias)
            (out * seeds[rank]).sum().backward()
            check(a.grad, want[wide][0][rank].grad, want[magnitudes][0][rank].grad, 3, f"{where} A")
            check(b.grad, want[wide][1][rank].grad, want[magnitudes][1][rank].grad, 3, f"{where} B")
            own = seeds[rank].double()
            check(bias.grad, own.sum((0, 1)), own.abs().sum((0, 1)), 1, f"{where} bias")


def quantized(rank, size):
    """What rounds its operands has the gradients of what does not, bit by bit: they take the operands as they are."""
    import torch

    t = tandem.torch
    for dtype, return_a in itertools.product(TYPES, (True, False)):
        inputs = [random(shape, dtype, i, rank) for i, shape in enumerate(([4, 6, 16], [16, 32], [16, 48], [32, 16]))]
        a, b, c, d = leaves(inputs)
        rounded = t.fused_all_gather_quantized_matmul(a, [b, c], 0, world(), return_A=return_a)
        plain = t.fused_all_gather_matmul(a, [b, c], 0, world(), return_A=return_a)
        (hidden,) = leaves([rounded[1][0]])
        shard = t.fused_quantized_matmul_reduce_scatter(hidden, d, "avg", 0, world())
        plain_shard = t.fused_matmul_reduce_scatter(hidden, d, "avg", 0, world())
        for one, other, of in (
            ([*rounded[1], *[rounded[0]] * return_a], [*plain[1], *[plain[0]] * return_a], [a, b, c]),
            ([shard], [plain_shard], [hidden, d]),
        ):
            assert not torch.equal(one[0], other[0])  # their values differ
            seeds = [random(out.shape, dtype, 7, i, rank) for i, out in enumerate(one)]
            for got, want in zip(
                torch.autograd.grad(one, of, seeds), torch.autograd.grad(other, of, seeds), strict=True
            ):
                assert want.abs().max() > 0 and torch.equal(got, want), (dtype, return_a)


def some_gradients(rank, size):
    """Only what is asked for is computed, and second derivatives exist."""
    import torch

    a, b = random([4, 8], "float32", 1, rank), random([8, 6], "float32", 2)
    for needs_a, needs_b in ((True, False), (False, True)):
        left, right = a.clone().requires_grad_(needs_a), b.clone().requires_grad_(needs_b)
        _, (out,) = tandem.torch.fused_all_gather_matmul(left, [right], 0, world(), return_A=False)
        tandem.torch.fused_matmul_reduce_scatter(out, right.t(), "sum", 0, world()).sum().backward()
        assert (left.grad is not None, right.grad is not None) == (needs_a, needs_b)

    left, right = leaves([a, b])
    _, (out,) = tandem.torch.fused_all_gather_matmul(left, [right], 0, world())
    (first,) = torch.autograd.grad((out**2).sum(), left, create_graph=True)
    first.sum().backward()
    # d/db of the sum of W * 2 * a @ b @ b.t(), summed over ranks for a's rows alone.
    whole = torch.cat([random([4, 8], "float32", 1, r) for r in range(size)]).double()
    reference = b.double().requires_grad_()
    (2 * (whole @ reference) @ reference.t()).sum().backward()
    torch.testing.assert_close(right.grad.double(), reference.grad, rtol=1e-4, atol=1e-4)


def own_products(rank, size):
    """Through the rank's own sum that a scatter returns."""
    import torch

    a, b = leaves(random(shape, "float32", rank, i) for i, shape in enumerate(([4, 8], [8, 6])))
    out, own = tandem.torch.fused_matmuls_reduce_scatter([a], [b], "sum", 0, world(), return_product=True)
    (out.sum() + 3 * own.sum()).backward()
    # Each product counts once in the sum of all results, and three times as the rank's own.
    left, right = wide([a, b])
    (4 * (left @ right)).sum().backward()
    for got, want in ((a, left), (b, right)):
        torch.testing.assert_close(got.grad.double(), want.grad, rtol=1e-4, atol=1e-4)
    # The sum of all is every rank's result.
    first, second = leaves([a, b])
    out, own = tandem.torch.fused_matmuls_all_reduce([first], [second], "sum", world(), return_product=True)
    (out.sum() + 3 * own.sum()).backward()
    for got, want in ((first, left), (second, right)):
        torch.testing.assert_close(got.grad.double(), want.grad * (size + 3) / 4, rtol=1e-4, atol=1e-4)


def no_gradient(rank, size):
    import torch

    a, b = random([4, 8], "float32", 1).requires_grad_(), random([8, 6], "float32", 2)
    out = tandem.torch.async_input_mm(a, b, torch.ones(2, dtype=torch.uint32), 0)
    error = caught(out.sum().backward)
    assert error.code is tandem.ErrorCode.UNSUPPORTED and "async_input_mm has no gradient" in error.text


def compiled(rank, size):
    import torch
    import torch.distributed as dist

    def program(a, b, c):
        _, (hidden,) = tandem.torch.fused_all_gather_matmul(a, [b], 0, dist.group.WORLD)
        shard = tandem.torch.fused_matmul_reduce_scatter(torch.relu(hidden), c, "sum", 0, dist.group.WORLD)
        return tandem.torch.fused_matmul_all_reduce(shard, b, "sum", dist.group.WORLD, c.sum(1))

    inputs = [random([4, 8], "float32", 1, rank), random([8, 6], "float32", 2), random([6, 8], "float32", 3)]
    plain, traced = leaves(inputs), leaves(inputs)
    program(*plain).sum().backward()
    torch.compile(program, backend="aot_eager", fullgraph=True)(*traced).sum().backward()
    for one, other in zip(plain, traced, strict=True):
        assert torch.equal(one.grad, other.grad)


def low_contention(rank, size):
    """Gradients of the low-contention collectives have the bits of those of the others, and uneven shards have them."""
    import torch

    ops, wait = torch.ops.tandem, torch.ops._c10d_functional.wait_tensor
    for dtype, dim in itertools.product(TYPES, (0, 1, -1)):
        where = f"{dtype} dim {dim}"
        last = dim % 2  # a dim as other ops take it
        shard, other = leaves([random([4 * size, 2 * size], dtype, 1, rank)] * 2)
        seed = random([n * (size if d == last else 1) for d, n in enumerate(shard.shape)], dtype, 2, rank)
        (wait(ops.low_contention_all_gather(shard, dim, world())) * seed).sum().backward()
        (ops.all_gather(other, last, world()) * seed).sum().backward()
        assert shard.grad.abs().max() > 0 and torch.equal(shard.grad, other.grad), where
        for reduce_op in ("sum", "avg"):
            own, other = leaves([random([4 * size, 2 * size], dtype, 3, rank)] * 2)
            seed = random([n // (size if d == last else 1) for d, n in enumerate(own.shape)], dtype, 4, rank)
            (wait(ops.low_contention_reduce_scatter(own, reduce_op, dim, world())) * seed).sum().backward()
            (ops.reduce_scatter(other, reduce_op, last, world()) * seed).sum().backward()
            assert own.grad.abs().max() > 0 and torch.equal(own.grad, other.grad), f"{where} {reduce_op}"

    for total in (1, 5, 2 * size):  # ranks have more or fewer rows, or none
        rows = tandem.shard_of(total, size, rank)
        seeds = [random([total, 3], "float32", 5, each) for each in range(size)]
        (shard,) = leaves([random([rows.size, 3], "float32", 6, rank)])
        (wait(ops.low_contention_all_gather(shard, 0, world(), total=total)) * seeds[rank]).sum().backward()
        torch.testing.assert_close(shard.grad, sum(seeds).narrow(0, *rows))
        (own,) = leaves([random([total, 3], "float32", 7, rank)])
        out = wait(ops.low_contention_reduce_scatter(own, "avg", 0, world()))
        (out * seeds[0].narrow(0, *rows)).sum().backward()
        torch.testing.assert_close(own.grad, seeds[0] / size)

    # A second derivative: d/dx of the sum of (2 W x)**2, whose square is another gather's.
    (x,) = leaves([random([2, 3], "float32", 8, rank)])
    squares = wait(ops.low_contention_all_gather(x, 0, world())) ** 2
    (first,) = torch.autograd.grad(squares.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad((first**2).sum(), x)
    torch.testing.assert_close(second, 8 * size**2 * x.detach())


def low_contention_compiled(rank, size):
    """Compiled programs, for any length too, have the bits of eager ones."""
    import torch
    import torch.distributed as dist

    def program(x, up, down):
        whole = tandem.torch.low_contention_all_gather(x, 0, dist.group.WORLD)
        beside = x @ up
        whole = torch.ops._c10d_functional.wait_tensor(whole)
        shard = tandem.torch.low_contention_reduce_scatter(whole @ up @ down, "avg", 0, dist.group.WORLD)
        return torch.ops._c10d_functional.wait_tensor(shard) @ up + beside

    for dynamic in (False, True):
        step = torch.compile(program, backend="aot_eager", fullgraph=True, dynamic=dynamic)
        for rows in (4, 7):
            inputs = [random(shape, "float32", rows, i, rank) for i, shape in enumerate(([rows, 8], [8, 6], [6, 8]))]
            plain, traced = leaves(inputs), leaves(inputs)
            want, got = program(*plain), step(*traced)
            want.sum().backward()
            got.sum().backward()
            for one, other in zip((want, *(t.grad for t in plain)), (got, *(t.grad for t in traced)), strict=True):
                assert torch.equal(one, other), (dynamic, rows)


def gradients(rank, size):
    plain = (gathers, scatters, all_reduces, quantized, some_gradients, own_products, no_gradient, compiled)
    for work in (*plain, low_contention, low_contention_compiled):
        work(rank, size)


@pytest.mark.parametrize("size", WORLDS)
def test_gradients(size):
    run(gradients, size)
