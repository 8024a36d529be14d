"""Misuse of tandem.torch by kind: each a clear error on every rank, and nothing hangs."""

import functools
import os

import pytest
from misuse_cases import Outcome, check, in_child, interrupted, outcome_of
from torch_ranks import needs_torch, random, run, world

import tandem

pytestmark = needs_torch

INVALID, UNSUPPORTED, MISMATCH = "INVALID_ARGUMENT", "UNSUPPORTED", "MISMATCH"


def ops():
    import torch

    return torch.ops.tandem


def a_and_b():
    return random([4, 8], "float32", 1), random([8, 6], "float32", 2)


def sparse():
    a, _ = a_and_b()
    return a.to_sparse()


def sparse_rows():
    a, _ = a_and_b()
    return a.to_sparse_csr()


def mkldnn():
    a, _ = a_and_b()
    return a.to_mkldnn()


def quantized():
    import torch

    a, _ = a_and_b()
    return torch.quantize_per_tensor(a, 0.1, 0, torch.qint8)


def nested():
    import torch

    return torch.nested.nested_tensor([torch.zeros(2, 8), torch.zeros(2, 8)])


def of_type(name):
    def make():
        import torch

        return torch.zeros(4, 8, dtype=getattr(torch, name))

    return make


def on_meta():
    import torch

    return torch.zeros(4, 8, device="meta")


# What stands for A in a call, and what becomes of it on every rank.
TENSORS = {
    "sparse": (sparse, (INVALID, "A is of layout torch.sparse_coo, need torch.strided")),
    "sparse rows": (sparse_rows, (INVALID, "A is of layout torch.sparse_csr")),
    "mkldnn": (mkldnn, (INVALID, "A is of layout torch._mkldnn")),
    "quantized": (quantized, (INVALID, "A is quantized")),
    "nested": (nested, "NotImplementedError"),
    "complex": (of_type("complex64"), (INVALID, "complex64")),
    "complex half": (of_type("complex32"), (INVALID, "complex32")),
    "bool": (of_type("bool"), (INVALID, "bool")),
    "int64": (of_type("int64"), (INVALID, "int64")),
    "float64": (of_type("float64"), (INVALID, "float64")),
    "float8": (of_type("float8_e4m3fn"), (INVALID, "float8_e4m3fn")),
    "other float8": (of_type("float8_e4m3fnuz"), (INVALID, "float8_e4m3fnuz")),
    "meta": (on_meta, (INVALID, "meta")),
    "no dims": (lambda: random([], "float32"), INVALID),
    "one dim": (lambda: random([8], "float32"), INVALID),
    "nine dims": (lambda: random([1] * 8 + [8], "float32"), (INVALID, "9 dims")),
    "array": (lambda: a_and_b()[0].numpy(), "RuntimeError"),
    "list": (lambda: [a_and_b()[0]], "RuntimeError"),
    "None": (lambda: None, ("TypeError", "need a tensor")),
}


def gather_of(make, as_b):
    def call():
        a, b = a_and_b()
        wrong = make()
        if as_b:
            return ops().fused_all_gather_matmul(a, [wrong], 0, world())
        return ops().fused_all_gather_matmul(wrong, [b], 0, world())

    return call


def scatter_of(make):
    def call():
        _, b = a_and_b()
        return ops().fused_matmul_reduce_scatter(make(), b, "sum", 0, world())

    return call


def collective_of(make):
    return lambda: ops().all_gather(make(), 0, world())


def all_calls():
    calls = {}
    for name, (make, expected) in TENSORS.items():
        calls[f"A {name}"] = gather_of(make, False), expected
        calls[f"scatter {name}"] = scatter_of(make), expected
        code = expected[0] if isinstance(expected, tuple) else expected
        calls[f"B {name}"] = gather_of(make, True), "RuntimeError" if name == "None" else code
    for name in ("sparse", "quantized", "nested", "complex"):
        make, expected = TENSORS[name]
        calls[f"all_gather {name}"] = collective_of(make), expected[0] if isinstance(expected, tuple) else expected
    return calls


CALLS = all_calls()


def tensors(rank, size):
    outcomes = {name: outcome_of(call) for name, (call, _) in CALLS.items()}
    a, b = a_and_b()
    assert ops().fused_all_gather_matmul(a, [b], 0, world())[1][0].shape == (4 * size, 6)  # nothing was harmed
    return {name: Outcome(value=repr(each)) if each.kind is None else each for name, each in outcomes.items()}


@functools.cache
def all_tensors(size):
    return run(tensors, size)


@pytest.mark.parametrize("name", CALLS)
def test_tensors_that_cannot_be_used(name):
    for rank, outcomes in enumerate(all_tensors(2)):
        check(outcomes[name], CALLS[name][1], f"rank {rank}")


def good_values(rank, size):
    """Tensors that look wrong and are right: views that PyTorch negates or conjugates, gradients, nothing at all."""
    import torch

    a, b = a_and_b()
    want = torch.cat([a] * size) @ b
    negative = torch._neg_view(-a)
    assert negative.is_neg()
    parameter = torch.nn.Parameter(a)
    for each in (a, negative, parameter, a.t().contiguous().t(), a.expand(4, 8), torch.view_as_complex(
        torch.stack([torch.zeros_like(a), a], -1)
    ).conj().imag.neg()):
        _, (out,) = ops().fused_all_gather_matmul(each, [b], 0, world())
        torch.testing.assert_close(out, want)
    with torch.no_grad():
        assert not ops().fused_all_gather_matmul(parameter, [b], 0, world())[1][0].requires_grad
    with torch.inference_mode():
        torch.testing.assert_close(ops().fused_all_gather_matmul(a, [b], 0, world())[1][0], want)
    for sizes in ((0, 8), (4, 0), (0, 0)):
        none = torch.zeros(sizes)
        _, (out,) = ops().fused_all_gather_matmul(none, [torch.zeros(sizes[1], 6)], 0, world())
        assert out.shape == (sizes[0] * size, 6) and (out == 0).all()
    assert ops().all_gather(torch.zeros(0, 3), 0, world()).shape == (0, 3)
    assert ops().reduce_scatter(torch.zeros(0, 3), "sum", 0, world()).shape == (0, 3)


@pytest.mark.parametrize("size", [1, 2])
def test_tensors_that_can_be_used(size):
    run(good_values, size)


# ---- low-contention collectives ----


def waited(tensor):
    import torch

    return torch.ops._c10d_functional.wait_tensor(tensor)


def beside_gather(name, dim, total=None):
    def call():
        make, _ = TENSORS[name] if name else (lambda: a_and_b()[0], None)
        return waited(ops().low_contention_all_gather(make(), dim, world(), total=total))

    return call


def beside_scatter(name, dim, reduce_op="sum"):
    def call():
        make, _ = TENSORS[name] if name else (lambda: a_and_b()[0], None)
        return waited(ops().low_contention_reduce_scatter(make(), reduce_op, dim, world()))

    return call


def beside_group(group):
    return lambda: tandem.torch.low_contention_all_gather(a_and_b()[0], 0, group)


BESIDE = {
    "gather dim 2": (beside_gather(None, 2), (INVALID, "gather_dim is 2, need -2 to 1")),
    "gather dim -3": (beside_gather(None, -3), (INVALID, "gather_dim is -3, need -2 to 1")),
    "scatter dim 2": (beside_scatter(None, 2), (INVALID, "scatter_dim is 2, need -2 to 1")),
    "gather of no dims": (beside_gather("no dims", 0), (INVALID, "gather_dim is 0, need a tensor that has dims")),
    "scatter of no dims": (beside_scatter("no dims", -1), (INVALID, "scatter_dim is -1")),
    "total": (beside_gather(None, 0, 5), (INVALID, "total is 5 and dim 0 of tensor has size 4, need")),
    "total below 0": (beside_gather(None, 0, -1), (INVALID, "need no size below 0")),
    "reduce_op": (beside_scatter(None, 0, "max"), (INVALID, "reduce_op is 'max', need sum or avg")),
    "gather complex": (beside_gather("complex", 0), (INVALID, "tensor is of type torch.complex64")),
    "scatter complex": (beside_scatter("complex", 0), (INVALID, "tensor is of type torch.complex64")),
    "scatter int64": (beside_scatter("int64", 0), (INVALID, "i64")),
    "gather sparse": (beside_gather("sparse", 0), (INVALID, "tensor is of layout torch.sparse_coo")),
    "gather list": (beside_gather("list", 0), "RuntimeError"),
    "gather None": (beside_gather("None", 0), ("TypeError", "need a tensor")),
    "group": (beside_group("nobody"), (INVALID, "there is no process group 'nobody' here")),
    "group 0": (beside_group(0), ("TypeError", "group: got a int")),
}


def beside(rank, size):
    outcomes = {name: outcome_of(call) for name, (call, _) in BESIDE.items()}
    assert beside_gather(None, 0)().shape == (4 * size, 8)  # nothing was harmed
    return {name: Outcome(value=repr(each)) if each.kind is None else each for name, each in outcomes.items()}


@functools.cache
def all_beside():
    return run(beside, 2)


@pytest.mark.parametrize("name", BESIDE)
def test_low_contention(name):
    for rank, outcomes in enumerate(all_beside()):
        check(outcomes[name], BESIDE[name][1], f"rank {rank}")


def alone(rank, size, waits):
    """A call that the other rank does not make. Nothing hangs, and its error comes from whatever comes next."""
    os.environ["TANDEM_RENDEZVOUS_TIMEOUT_MS"] = "2000"  # the first call of its kind waits so long
    group = tandem.torch.group_of(world())
    if rank == 1:
        while outcome_of(group.check).kind is None:
            pass
        return None
    a, b = a_and_b()
    out = ops().low_contention_all_gather(a, 0, world())
    first = outcome_of(waited, out) if waits else None
    return first, outcome_of(ops().fused_all_gather_matmul, a, [b], 0, world())


@pytest.mark.parametrize("waits", [True, False])
def test_low_contention_on_one(waits):
    (first, later), _ = run(alone, 2, waits)
    if waits:
        check(first, ("TIMEOUT", "rank 1"))
    check(later, ("TIMEOUT", "rank 1"))


def lost(rank, size):
    """What a call that nobody waits for makes of an error: the group's end logs it, and a later wait raises it."""
    import logging

    import torch.distributed as dist

    os.environ["TANDEM_OP_TIMEOUT_MS"] = "1000"
    tandem.torch.group_of(world())
    texts = []
    handler = logging.Handler()
    handler.emit = lambda record: texts.append(record.getMessage())
    logging.getLogger("tandem").addHandler(handler)
    out = ops().low_contention_all_gather(a_and_b()[0], 0, world()) if rank == 0 else None
    dist.barrier()  # or a rank that has left is an error of the call
    tandem.torch.close_groups()
    return texts, outcome_of(waited, out) if rank == 0 else None


def test_low_contention_that_nobody_waits_for():
    (texts, late), (none, _) = run(lost, 2)
    (text,) = texts
    assert "nobody has waited for a low-contention collective" in text and not none
    assert late.code in ("TIMEOUT", "PEER_LOST") and late.text in text, (late, text)


# ---- groups ----


def names_of_groups(rank, size):
    """Names that stand for no group here."""
    import torch
    import torch.distributed as dist

    a, b = a_and_b()

    def call(group):
        return tandem.torch.fused_all_gather_matmul(a, [b], 0, group)

    outsiders = dist.new_group([0])
    outcomes = {
        "wrong name": outcome_of(call, "nobody"),
        "no name": outcome_of(call, ""),
        "None": outcome_of(call, None),
        "number": outcome_of(call, 0),
        "a tandem group": outcome_of(call, tandem.torch.group_of(world())),
        "device meta": outcome_of(tandem.torch.group_of, world(), "meta"),
        "device of no kind": outcome_of(tandem.torch.group_of, world(), "tpu"),
        "device number": outcome_of(tandem.torch.group_of, world(), []),
    }
    if rank == 1:
        outcomes["not a member"] = outcome_of(call, outsiders)
    tandem.torch.group_of(world()).close()
    outcomes["closed"] = outcome_of(call, world())
    tandem.torch.close_groups()
    tandem.torch.close_groups()
    call(world())  # made anew
    group, name = dist.group.WORLD, world()
    dist.barrier()
    dist.destroy_process_group()
    outcomes["destroyed"] = outcome_of(call, name)
    outcomes["destroyed object"] = outcome_of(call, group)
    outcomes["size of a destroyed one"] = outcome_of(lambda: torch.ops.tandem.fused_all_gather_matmul(
        a.to("meta"), [b.to("meta")], 0, name
    ))
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    outcomes["another"] = outcome_of(lambda: call(world())[1][0].shape)
    return outcomes


NAMES = {
    "wrong name": (INVALID, "there is no process group 'nobody' here"),
    "no name": (INVALID, "there is no process group '' here"),
    "None": ("TypeError", "group: got a NoneType, need a ProcessGroup or its name"),
    "number": ("TypeError", "group: got a int"),
    "a tandem group": ("TypeError", "group: got a Group"),
    "device meta": (UNSUPPORTED, "tensors are on meta, need cpu or cuda"),
    "device of no kind": (INVALID, "device is 'tpu', need cpu or cuda"),
    "device number": ("TypeError", "device: got a list"),
    "closed": (INVALID, ("the group is closed", "need tandem.torch.close_groups()")),
    "destroyed": (INVALID, "there is no process group"),
    "destroyed object": (INVALID, "there is no process group"),
    "size of a destroyed one": (INVALID, "there is no process group"),
    "another": None,
    "not a member": ("TypeError", "need a ProcessGroup"),
}


@functools.cache
def all_names():
    return run(names_of_groups, 2)


@pytest.mark.parametrize("name", NAMES)
def test_names_of_groups(name):
    for outcomes in all_names():
        if name in outcomes:
            check(outcomes[name], NAMES[name])
    assert name in all_names()[1]


def test_before_init_process_group():
    import torch

    a, b = a_and_b()
    check(outcome_of(torch.ops.tandem.fused_all_gather_matmul, a, [b], 0, "0"), (INVALID, "no process group '0'"))


def differs(rank, size, case):
    """Calls in which the ranks differ. The tandem group exists, except where the ranks ask for different ones."""
    import torch
    import torch.distributed as dist

    os.environ["TANDEM_RENDEZVOUS_TIMEOUT_MS"] = os.environ["TANDEM_OP_TIMEOUT_MS"] = "3000"
    a, b = a_and_b()
    pair = dist.new_group([0, 1])
    if case != "group":
        tandem.torch.group_of(world())
    if case == "group":
        call = functools.partial(ops().fused_all_gather_matmul, a, [b], 0, world() if rank == 0 else pair.group_name)
    elif case == "type":
        dtype = torch.float32 if rank == 0 else torch.bfloat16
        call = functools.partial(ops().fused_all_gather_matmul, a.to(dtype), [b.to(dtype)], 0, world())
    elif case == "sizes":
        call = functools.partial(ops().all_gather, a[: 4 - rank], 0, world())
    elif case == "dim":
        call = functools.partial(ops().reduce_scatter, a, "sum", rank, world())
    elif case == "reduce_op":
        call = functools.partial(ops().reduce_scatter, a, ["sum", "avg"][rank], 0, world())
    elif case == "op":
        scatter = functools.partial(ops().reduce_scatter, a, "sum", 0, world())
        call = functools.partial(ops().all_gather, a, 0, world()) if rank == 0 else scatter
    elif case == "low contention":
        call = lambda: waited(ops().low_contention_reduce_scatter(a, "sum", rank, world()))  # noqa: E731
    elif case == "low contention on one":
        call = lambda: waited(ops().low_contention_all_gather(a, 5 * rank, world()))  # noqa: E731
    elif case == "sparse on one":
        call = functools.partial(ops().all_gather, a.to_sparse() if rank == 1 else a, 0, world())
    elif case == "scatter dim on one":
        call = functools.partial(ops().reduce_scatter, a, "sum", 5 * rank, world())
    elif case == "gather dim on one":
        call = functools.partial(ops().all_gather, a, 5 * rank, world())
    else:  # backward on one
        leaf = a.clone().requires_grad_()
        _, (out,) = ops().fused_all_gather_matmul(leaf, [b], 0, world(), return_A=False)

        def call():
            if rank == 0:
                return out.sum().backward()
            group = tandem.torch.group_of(world())
            while True:
                group.check()

    outcome = outcome_of(call)
    return Outcome(value=0) if outcome.kind is None else outcome


DIFFERENT = {
    "group": ("TIMEOUT", "TIMEOUT"),
    "type": (MISMATCH, MISMATCH),
    "sizes": (MISMATCH, MISMATCH),
    "dim": (MISMATCH, MISMATCH),
    "reduce_op": (MISMATCH, MISMATCH),
    "op": (MISMATCH, MISMATCH),
    "low contention": (MISMATCH, MISMATCH),
    "low contention on one": (MISMATCH, INVALID),
    "sparse on one": (MISMATCH, INVALID),
    "scatter dim on one": (MISMATCH, INVALID),
    "gather dim on one": (MISMATCH, INVALID),
    "backward on one": ("TIMEOUT", "TIMEOUT"),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_ranks_that_differ(case):
    for rank, outcome in enumerate(run(differs, 2, case)):
        check(outcome, DIFFERENT[case][rank], f"rank {rank}")


# ---- gradients ----


def gradients(rank, size):
    """Gradients that do not exist say so; those of the others do not hold for a second derivative's graph."""
    import torch

    a, b = a_and_b()
    a.requires_grad_()
    outcomes = {}
    f8 = torch.zeros(4, 16).to(torch.float8_e4m3fn)
    one = torch.tensor(1.0, requires_grad=True)
    lists = ([None], [None], [torch.bfloat16], [False])
    _, (scaled,) = ops().fused_all_gather_scaled_matmul(f8, [f8.t()], one, [one], 0, world(), *lists)
    outcomes["scaled"] = outcome_of(lambda: scaled.sum().backward())
    signals = torch.ones(2, dtype=torch.uint32)
    outcomes["async_input_mm"] = outcome_of(lambda: ops().async_input_mm(a, b, signals, 0).sum().backward())
    _, (out,) = ops().fused_all_gather_matmul(a, [b], 0, world())
    out.sum().backward()
    outcomes["twice"] = outcome_of(lambda: out.sum().backward())
    _, (out,) = ops().fused_all_gather_matmul(a, [b], 0, world(), return_A=False)
    outcomes["changed"] = outcome_of(lambda: (a.detach().add_(1), out.sum().backward()))
    outcomes["vmap"] = outcome_of(lambda: torch.vmap(lambda x: ops().all_gather(x, 0, world()))(a.detach()[None]))
    return outcomes


GRADIENTS = {
    "scaled": (UNSUPPORTED, "has no gradient: call fused_all_gather_quantized_matmul with bf16, f16 or f32 operands"),
    "async_input_mm": (UNSUPPORTED, "async_input_mm has no gradient"),
    "twice": ("RuntimeError", "second time"),
    "changed": ("RuntimeError", "modified by an inplace operation"),
}


@functools.cache
def all_gradients():
    return run(gradients, 2)


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    for outcomes in all_gradients():
        check(outcomes[name], GRADIENTS[name])


# ---- fork and ^C ----


def fork(rank, size):
    a, b = a_and_b()
    tandem.torch.group_of(world())

    def call():
        return ops().fused_all_gather_matmul(a, [b], 0, world())

    def local():
        import torch

        return ops().async_input_mm(a, b, torch.ones(2, dtype=torch.uint32), 0).shape

    outcomes = []
    if rank == 1:
        # A child that has a process group of gloo does not end by itself, whatever it does with it.
        outcomes = [in_child(work, os._exit) for work in (call, local, tandem.torch.close_groups)]
    call()
    return outcomes


def test_fork():
    _, (outcome, local, closed) = run(fork, 2)
    check(outcome, (INVALID, ("was made in process", "fork()")))
    check(local, None)
    check(closed, None)


def interrupt(rank, size):
    a, b = a_and_b()
    if rank == 1:
        return None  # run() ends with all ranks
    return [interrupted(tandem.torch.group_of, world())]


def interrupt_in_op(rank, size):
    a, b = a_and_b()
    group = tandem.torch.group_of(world())
    if rank == 0:
        outcome = interrupted(ops().fused_all_gather_matmul, a, [b], 0, world())
        group.poison("rank 0 was interrupted", 0)
        return [outcome]
    while outcome_of(group.check).kind is None:
        pass
    return None


@pytest.mark.parametrize("work", [interrupt, interrupt_in_op])
def test_interrupt(work):
    (outcome,), _ = run(work, 2)
    check(outcome, "KeyboardInterrupt")
