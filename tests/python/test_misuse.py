"""Misuse by kind: each a clear error on every rank, nothing hangs, and a sound group goes on."""

import copy
import functools
import gc
import multiprocessing
import pickle
import queue
import signal
import subprocess
import sys
import threading

import numpy
import pytest
from misuse_cases import Outcome, check, in_child, interrupted, outcome_of, run_cases
from reference import F32, random

import tandem

A = random((4, 8), F32, 1)
B = random((8, 6), F32, 2)
HANDLE = numpy.zeros(4, F32)


@pytest.fixture
def group():
    with tandem.init() as made:
        yield made


def packed():
    """A 4-bit weight [2, 64]."""
    return tandem.pack_4bit_weight(numpy.zeros((2, 32), numpy.uint8), numpy.ones((2, 2), F32), None, 32, 64, 2)


# ---- one rank: things that are closed, of another kind, or of elsewhere ----

COLLECTIVES = {
    "fused_all_gather_matmul": lambda **named: tandem.fused_all_gather_matmul(A, B, **named),
    "fused_matmul_reduce_scatter": lambda **named: tandem.fused_matmul_reduce_scatter(A, B, **named),
    "fused_all_gather_scaled_matmul": lambda **named: tandem.fused_all_gather_scaled_matmul(
        A, B, scale_mode="none", **named
    ),
    "fused_all_gather_block_scaled_matmul": lambda **named: tandem.fused_all_gather_block_scaled_matmul(
        A, B, A, B, **named
    ),
    "fused_scaled_matmul_reduce_scatter": lambda **named: tandem.fused_scaled_matmul_reduce_scatter(A, B, **named),
    "all_gather": lambda **named: tandem.all_gather(A, **named),
    "reduce_scatter": lambda **named: tandem.reduce_scatter(A, **named),
    "symm.empty": lambda **named: tandem.symm.empty(4, **named),
    "symm.rendezvous": lambda **named: tandem.symm.rendezvous(HANDLE, **named),
    "symm.set_signal_pad_size": lambda **named: tandem.symm.set_signal_pad_size(64, **named),
}
METHODS = {
    "meet": lambda group: group.meet(),
    "all_gather_bytes": lambda group: group.all_gather_bytes(b"x"),
    "check": lambda group: group.check(),
    "poison": lambda group: group.poison("text"),
    "subgroup": lambda group: group.subgroup([0], "one"),
    "rank": lambda group: group.rank,
    "size": lambda group: group.size,
    "name": lambda group: group.name,
}
LOCAL = {
    "mm": lambda **named: tandem.mm(A, B, **named),
    "scaled_matmul": lambda **named: tandem.scaled_matmul(A, B, None, None, **named),
    "async_input_mm": lambda **named: tandem.async_input_mm(A, B, numpy.ones(2, numpy.uint32), **named),
    "matmul_4bit": lambda **named: tandem.matmul_4bit(numpy.ones((2, 64), F32), packed(), **named),
    "reduce_stack": lambda **named: tandem.reduce_stack(A[None], **named),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_group_that_is_not_there(name):
    call = COLLECTIVES[name]
    check(outcome_of(call), ("INVALID_ARGUMENT", "no group: call tandem.init() first"), "before init")
    with tandem.init() as group:
        pass
    check(outcome_of(call), ("INVALID_ARGUMENT", "the group is closed"), "default")
    check(outcome_of(call, group=group), ("INVALID_ARGUMENT", "the group is closed"), "argument")
    tandem.finalize()
    tandem.finalize()
    check(outcome_of(call), ("INVALID_ARGUMENT", "no group: call tandem.init() first"), "after finalize")
    for wrong in ("world", 0, False, 3):
        check(outcome_of(call, group=wrong), ("TypeError", "need a tandem.Group"), f"group={wrong!r}")


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_a_closed_group(name):
    with tandem.init() as group:
        pass
    group.close()
    check(outcome_of(METHODS[name], group), ("INVALID_ARGUMENT", "the group is closed"))
    assert "closed" in repr(group)


@pytest.mark.parametrize("name", LOCAL)
def test_devices_and_streams_of_another_kind(name):
    call = LOCAL[name]
    for wrong in ("cpu", 0, A):
        check(outcome_of(call, device=wrong), ("TypeError", "need a tandem.Device or a tandem.Group"), repr(wrong))
    for wrong in ("default", 7, A):
        check(outcome_of(call, stream=wrong), ("TypeError", "need a tandem.Stream"), repr(wrong))


SCALARS = [
    ({"gather_dim": 0.5}, "TypeError"),
    ({"gather_dim": "0"}, "TypeError"),
    ({"gather_dim": 1 << 40}, "TypeError"),
    ({"gather_size": "4"}, "TypeError"),
    ({"gather_size": -4}, "INVALID_ARGUMENT"),
    ({"gather_size": 0}, "INVALID_ARGUMENT"),
    ({"plan_n": None}, "TypeError"),
    ({"algorithm": 3}, "TypeError"),
    ({"algorithm": ""}, "INVALID_ARGUMENT"),
    ({"a_handle": A}, ("TypeError", "a_handle: got a ndarray, need a tandem.symm.Handle")),
    ({"stream": "s"}, ("TypeError", "need a tandem.Stream")),
    ({"out": [None]}, ("TypeError", "out[0]: got a NoneType, need an array")),
    ({"out": []}, "INVALID_ARGUMENT"),
    ({"b": [B, None]}, ("TypeError", "b[1]: got a NoneType, need an array")),
    ({"b": None}, "INVALID_ARGUMENT"),
    ({"bias": [B[0], B[0]]}, "INVALID_ARGUMENT"),
    ({"gathered": 1}, ("TypeError", "gathered: got a int, need an array")),
]


@pytest.mark.parametrize("arguments, expected", SCALARS, ids=[str(list(given)) for given, _ in SCALARS])
def test_arguments_of_another_kind(group, arguments, expected):
    outcome = outcome_of(tandem.fused_all_gather_matmul, **({"a": A, "b": B} | arguments))
    check(outcome, expected)
    group.check()
    assert tandem.fused_all_gather_matmul(A, B).out[0].shape == (4, 6)


def unaligned():
    memory = numpy.zeros(4 * 8 * 4 + 1, numpy.uint8)
    return memory[1:].view(F32).reshape(4, 8)


class Lying:
    """An object that says it is an array."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        raise BufferError("not exported")


ARRAYS = {
    "objects": (lambda: A.astype(object), ("UNSUPPORTED", "object")),
    "text": (lambda: numpy.array([["x"] * 8] * 4), ("UNSUPPORTED", "str")),
    "dates": (lambda: numpy.zeros((4, 8), "datetime64[s]"), ("UNSUPPORTED", "datetime64")),
    "records": (lambda: numpy.zeros((4, 8), [("x", "f4"), ("y", "f4")]), ("UNSUPPORTED", "void")),
    "other bytes": (lambda: A.astype(">f4"), ("INVALID_ARGUMENT", "bytes in the other order")),
    "unaligned": (unaligned, ("INVALID_ARGUMENT", "not aligned to its elements")),
    "negative stride": (lambda: A[:, ::-1], ("INVALID_ARGUMENT", "negative stride")),
    "of a record": (
        lambda: numpy.zeros((4, 8), [("x", "f4"), ("y", "u2")])["x"],
        ("INVALID_ARGUMENT", "not a multiple of its element"),
    ),
    "no dims": (lambda: numpy.float32(1).reshape(()), "INVALID_ARGUMENT"),
    "scalar": (lambda: numpy.float32(1), "INVALID_ARGUMENT"),
    "one dim": (lambda: A[0], "INVALID_ARGUMENT"),
    "masked": (lambda: numpy.ma.masked_array(A, A > 0), ("TypeError", "masked")),
    "does not export": (Lying, ("BufferError", "not exported")),
    "a class": (lambda: numpy.ndarray, ("TypeError", "need an array")),
    "None": (lambda: None, ("TypeError", "need an array")),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_cannot_be_used(group, name):
    make, expected = ARRAYS[name]
    check(outcome_of(tandem.fused_all_gather_matmul, make(), B), expected, "fused")
    check(outcome_of(tandem.mm, make(), B), expected, "mm")
    assert tandem.fused_all_gather_matmul(A, B).out[0].shape == (4, 6)


def test_outputs_that_cannot_be_written(group):
    same = numpy.zeros((4, 6), F32)
    wide = numpy.broadcast_to(numpy.zeros(6, F32), (4, 6))
    once = numpy.lib.stride_tricks.as_strided(numpy.zeros(6, F32), (4, 6), (0, 4), writeable=True)
    for call, expected in (
        (lambda: tandem.fused_all_gather_matmul(A, [B, B], out=[same, same]), ("INVALID_ARGUMENT", "memory")),
        (lambda: tandem.fused_all_gather_matmul(A, B, out=wide), ("INVALID_ARGUMENT", "strides [0, 1]")),
        (lambda: tandem.mm(A, B, out=once), ("INVALID_ARGUMENT", "memory")),
        (lambda: tandem.all_gather(A, out=A[:3]), "INVALID_ARGUMENT"),
        (lambda: tandem.reduce_scatter(A, out=B), "INVALID_ARGUMENT"),
    ):
        check(outcome_of(call), expected)


OBJECTS = {
    "Packed4bitWeight": lambda group: packed(),
    "PackedB": lambda group: tandem.pack_b(B),
    "Group": lambda group: group,
    "Stream": lambda group: group.create_stream(),
    "Event": lambda group: group.create_stream().record(),
    "Device": lambda group: group.device,
    "Handle": lambda group: tandem.symm.rendezvous(tandem.symm.empty(4)),
    "Array": lambda group: tandem.symm.empty(4, library="tandem"),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_what_belongs_to_a_process_is_not_copied(group, name):
    thing = OBJECTS[name](group)
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        if way is copy.copy and name == "Handle":
            continue  # another reference to the same memory
        check(outcome_of(way, thing), ("TypeError", f"cannot pickle or copy a tandem.{name}"), way.__name__)


def test_streams_after_their_group(group):
    """A stream outlives its group. Its memory stays until the work is done, whatever else goes."""
    stream = group.create_stream()
    a = A.copy()
    out = tandem.mm(a, B, stream=stream)
    view = out[1:]
    del a, out
    gc.collect()
    group.close()
    stream.synchronize()
    numpy.testing.assert_allclose(view, (A @ B)[1:], rtol=1e-5)
    check(outcome_of(tandem.all_gather, A, group=group, stream=stream), ("INVALID_ARGUMENT", "the group is closed"))
    stream.synchronize()


def test_a_stream_of_another_group(group):
    with tandem.init(name="other") as other:
        stream = other.create_stream()
        assert tandem.all_gather(A, group=group).shape == (4, 8)
        outcome = outcome_of(tandem.all_gather, A, group=group, stream=stream)
        stream.synchronize()
        assert outcome.kind is None or outcome.code == "INVALID_ARGUMENT", outcome
        handle = tandem.symm.rendezvous(tandem.symm.empty(4, group=group), group)
        check(outcome_of(handle.barrier, stream=stream), ("INVALID_ARGUMENT", "the stream belongs to"))
    group.check()


def test_handles_after_their_group():
    group = tandem.init()
    tensor = tandem.symm.empty((2, 3), "f32")
    tensor[...] = 7
    handle = tandem.symm.rendezvous(tensor)
    buffer = handle.buffer(0, (2, 3), "f32")
    del tensor
    group.close()
    for name, call in {
        "put_signal": lambda: handle.put_signal(0),
        "wait_signal": lambda: handle.wait_signal(0),
        "barrier": handle.barrier,
        "get": lambda: handle.get(numpy.zeros(3, F32), 0),
        "put": lambda: handle.put(numpy.zeros(3, F32), 0),
    }.items():
        check(outcome_of(call), ("INVALID_ARGUMENT", "the handle's group has been destroyed"), name)
    assert (handle.buffer(0, (2, 3), "f32") == 7).all()  # the memory is there as long as the handle
    del handle
    gc.collect()
    assert (buffer == 7).all()


def test_handles_and_their_arrays(group):
    handle = tandem.symm.rendezvous(tandem.symm.empty((4, 8)))
    check(outcome_of(tandem.fused_all_gather_matmul, A, B, a_handle=handle), "INVALID_ARGUMENT", "another array")
    for call, text in (
        (lambda: handle.buffer(1, (1,), "f32"), "rank 1, need 0 to 0"),
        (lambda: handle.buffer(0, (64,), "f64"), "bytes requested"),
        (lambda: handle.buffer(0, (-1,), "f32"), "-1"),
        (lambda: handle.buffer(0, (1,), "f33"), "unknown type 'f33'"),
        (lambda: handle.put_signal(1), "rank 1, need 0 to 0"),
        (lambda: handle.put_signal(0, channel=1 << 20), "channel 1048576, need 0 to"),
        (lambda: handle.wait_signal(0, timeout=0), "need more than 0"),
        (lambda: handle.barrier(timeout=-1), "need more than 0"),
        (lambda: handle.get(numpy.zeros(33, F32), 0), "bytes requested"),
        (lambda: handle.get(numpy.zeros((4, 4), F32).T, 0), "not contiguous"),
        (lambda: tandem.symm.set_signal_pad_size(3), "3"),
        (lambda: tandem.symm.empty((2, -1)), "-1"),
        (lambda: tandem.symm.empty((1 << 40, 1 << 40)), "bytes"),
        (lambda: tandem.symm.empty(4, "f33"), "unknown type 'f33'"),
        (lambda: tandem.symm.rendezvous(numpy.zeros(4, F32)), "not symmetric memory"),
    ):
        outcome = outcome_of(call)
        assert outcome.code in ("INVALID_ARGUMENT", "OUT_OF_MEMORY") and text in outcome.text, (text, outcome)
    check(outcome_of(tandem.symm.rendezvous, "text"), ("TypeError", "need an array"))
    handle.barrier()
    with tandem.init(name="other") as other:
        outcome = outcome_of(tandem.fused_all_gather_matmul, A, B, a_handle=handle, group=other)
        check(outcome, "INVALID_ARGUMENT", "another group")


INITS = {
    "rank alone": ({"rank": 0}, ("INVALID_ARGUMENT", "need both or neither")),
    "no op_timeout": ({"op_timeout": 0}, ("INVALID_ARGUMENT", "op_timeout is 0 s, need more than 0")),
    "no rendezvous_timeout": ({"rendezvous_timeout": 0}, ("INVALID_ARGUMENT", "rendezvous_timeout is 0 s")),
    "negative": ({"rank": 1, "size": 2, "rendezvous_timeout": -1}, ("INVALID_ARGUMENT", "is -1 s, need more than 0")),
    "not a number": ({"op_timeout": float("nan")}, ("INVALID_ARGUMENT", "op_timeout is nan")),
    "endless": ({"op_timeout": float("inf")}, ("INVALID_ARGUMENT", "op_timeout")),
    "no name": ({"name": ""}, ("INVALID_ARGUMENT", "a name of 0 characters, need 1 to 512")),
    "long name": ({"name": "x" * 600}, ("INVALID_ARGUMENT", "a name of 600 characters, need 1 to 512")),
    "name of another kind": ({"name": 3}, "TypeError"),
    "rank of another kind": ({"rank": "0", "size": 1}, "TypeError"),
    "fault": ({"fault": "nonsense"}, "INVALID_ARGUMENT"),
    "device": ({"device": "tpu"}, ("INVALID_ARGUMENT", "need cpu, cuda")),
}


@pytest.mark.parametrize("name", INITS)
def test_init(name):
    arguments, expected = INITS[name]
    check(outcome_of(tandem.init, **arguments), expected)
    with tandem.init() as group:
        group.meet()


@pytest.mark.parametrize(
    "variables, text",
    [
        ({"RANK": "zero", "WORLD_SIZE": "2"}, "RANK is 'zero', need a number"),
        ({"RANK": "0", "WORLD_SIZE": ""}, "WORLD_SIZE is '', need a number"),
        ({"RANK": "5", "WORLD_SIZE": "2"}, "rank 5 of 2, need 0 <= rank < size"),
        ({"LOCAL_RANK": "first"}, "LOCAL_RANK is 'first', need a number"),
        ({"TANDEM_RENDEZVOUS_TIMEOUT_MS": "soon"}, "TANDEM_RENDEZVOUS_TIMEOUT_MS"),
        ({"TANDEM_OP_TIMEOUT_MS": "-3"}, "TANDEM_OP_TIMEOUT_MS"),
    ],
)
def test_the_environment(monkeypatch, variables, text):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    check(outcome_of(tandem.init), ("INVALID_ARGUMENT", text))


def no_work(rank, size):
    return rank


class Unloadable:
    """It can be sent, but not received."""

    def __reduce__(self):
        return int, ("no number",)


LAUNCHES = {
    "not a function": (lambda: tandem.launch(3, 1), ("TypeError", "fn: got a int, need a function")),
    "no ranks": (lambda: tandem.launch(no_work, 0), ("INVALID_ARGUMENT", "0 ranks, need")),
    "negative": (lambda: tandem.launch(no_work, -1), ("INVALID_ARGUMENT", "-1 ranks, need")),
    "too many": (lambda: tandem.launch(no_work, 5000), ("INVALID_ARGUMENT", "5000 ranks, need 1 to 4096")),
    "text": (lambda: tandem.launch(no_work, "2"), ("TypeError", "ranks: got a str, need an int")),
    "a fraction": (lambda: tandem.launch(no_work, 1.5), ("TypeError", "ranks: got a float, need an int")),
    "grace": (lambda: tandem.launch(no_work, 1, grace=-1), ("INVALID_ARGUMENT", "grace")),
    "arguments": (lambda: tandem.launch(no_work, 1, "more"), ("TypeError", "positional arguments")),
    "cannot be sent": (lambda: tandem.launch(no_work, 1, threading.Lock()), ("TypeError", "cannot pickle")),
    "cannot be received": (lambda: tandem.launch(no_work, 1, Unloadable()), ("ValueError", "no number")),
    "result": (lambda: tandem.launch(lambda rank, size: threading.Lock(), 1), ("TypeError", "cannot pickle")),
    "a group as argument": (
        lambda: tandem.launch(no_work, 1, tandem.init()),
        ("TypeError", "cannot pickle or copy a tandem.Group"),
    ),
    "a group as result": (
        lambda: tandem.launch(lambda rank, size: tandem.init(), 2),
        ("TypeError", "cannot pickle or copy a tandem.Group"),
    ),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_launch(name):
    call, expected = LAUNCHES[name]
    check(outcome_of(call), expected)
    assert tandem.launch(no_work, 2) == [0, 1]


def test_launch_in_launch():
    def work(rank, size):
        inner = tandem.launch(lambda r, s: (r, s, tandem.init().size), 2)
        outer = tandem.init()
        outer.meet()
        return inner, outer.size

    assert tandem.launch(work, 2) == [([(0, 2, 2), (1, 2, 2)], 2)] * 2


# ---- threads ----


def test_products_in_threads(group):
    """Calls without a group run in any thread, also side by side."""
    outs = {}

    def work(i):
        for _ in range(50):
            outs[i] = outcome_of(tandem.mm, A, B)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for outcome in outs.values():
        check(outcome, None)
        numpy.testing.assert_allclose(outcome.value, A @ B, rtol=1e-5)


def in_use(rank, size):
    """Two threads make a call of the group, or of its stream: one waits in it, and the other is refused."""
    outcomes = {}
    group = tandem.init()
    handle = tandem.symm.rendezvous(tandem.symm.empty(4))
    # A barrier sends signals too: on a channel of its own, so that rank 1 does not take one for put_signal()'s.
    barrier = functools.partial(handle.barrier, tandem.symm.FIRST_USER_CHANNEL + 1)
    for name, waiting in {"group": group.meet, "stream": barrier}.items():
        group.meet()
        if rank == 1:
            handle.wait_signal(0)
            waiting()
            continue
        stream = group.create_stream()
        ended = queue.Queue()
        threads = [threading.Thread(target=lambda call=waiting: ended.put(outcome_of(call))) for _ in range(2)]
        for thread in threads:
            thread.start()
        outcomes[name] = ended.get()
        if name == "group":
            outcomes["close"] = outcome_of(group.close)
            outcomes["all_gather"] = outcome_of(tandem.all_gather, A)
        else:
            outcomes["mm"] = outcome_of(tandem.mm, A, B, device=group)
        handle.put_signal(1, stream=stream)
        stream.synchronize()
        for thread in threads:
            thread.join()
        outcomes[f"{name} of the other"] = ended.get()
    group.meet()
    return outcomes


def test_calls_of_another_thread_meanwhile():
    outcomes, _ = tandem.launch(in_use, 2)
    of_group = ("INVALID_ARGUMENT", "the group is in a call")
    of_stream = ("INVALID_ARGUMENT", "the stream is in a call")
    expected = dict.fromkeys(("group", "close", "all_gather"), of_group) | dict.fromkeys(("stream", "mm"), of_stream)
    expected |= dict.fromkeys(("group of the other", "stream of the other"))
    assert outcomes.keys() == expected.keys()
    for name, outcome in outcomes.items():
        check(outcome, expected[name], name)


def test_another_thread_takes_over():
    def work(rank, size):
        group = tandem.init()
        out = []
        thread = threading.Thread(target=lambda: out.append(tandem.all_gather(A)))
        thread.start()
        thread.join()
        tandem.all_gather(A)
        thread = threading.Thread(target=group.close)
        thread.start()
        thread.join()
        return out[0].shape

    assert tandem.launch(work, 2) == [(8, 8)] * 2


# ---- ranks that do not do the same ----


def only(rank, call, otherwise=None):
    """A case in which one rank makes another call than the others."""

    def case(group):
        chosen = call if group.rank == rank else otherwise
        return chosen(group) if chosen else await_error(group)

    return case


def await_error(group):
    """Stays until another rank has poisoned the group. Its deadline is the job's."""
    for _ in range(4000):
        group.check()
        threading.Event().wait(0.01)


def gather(group):
    return tandem.all_gather(A, group=group).shape


def refused_here(wrong):
    """A call that is refused on this rank, and then what the others see."""

    def call(group):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            wrong(group)
        await_error(group)

    return call


def with_second(use):
    """A case with two groups at once."""

    def case(group):
        second = tandem.init(name=group.name + " 2", op_timeout=3.0, rendezvous_timeout=3.0)
        try:
            return use(group, second)
        finally:
            second.close()

    return case


def in_opposite_order(first, second):
    for each in (first, second) if first.rank == 0 else (second, first):
        each.meet()


def mixed_up(first, second):
    """Rank 0 waits in the first group, rank 1 in the second. Neither closes a group before both have timed out: else the
    later one would report that its peer has left."""
    both = tandem.init(name=first.name + " both", op_timeout=30.0)
    try:
        return gather(first if first.rank == 0 else second)
    finally:
        both.meet()
        both.close()


MISMATCH = "MISMATCH"
# Of each case: what rank 0 and rank 1 get.
DIFFERENT = {
    "other op": (only(0, gather, lambda g: tandem.reduce_scatter(A, group=g)), (MISMATCH, MISMATCH)),
    "other sizes": (
        only(0, gather, lambda g: tandem.all_gather(A[:3], group=g)),
        ((MISMATCH, "runs #"), (MISMATCH, "runs #")),
    ),
    "other exchange": (only(0, lambda g: g.meet(), lambda g: g.all_gather_bytes(b"")), (MISMATCH, MISMATCH)),
    "op and exchange": (only(0, gather, lambda g: g.meet()), ("TIMEOUT", "TIMEOUT")),
    "no call": (only(0, gather), (("TIMEOUT", "rank 1"), ("TIMEOUT", "rank 1"))),
    "no exchange": (only(0, lambda g: g.meet()), (("TIMEOUT", "rank 1"), ("TIMEOUT", "rank 1"))),
    "no rendezvous": (
        only(0, lambda g: tandem.symm.rendezvous(tandem.symm.empty(4, group=g), g)),
        (("TIMEOUT", "rank 1"), ("TIMEOUT", "rank 1")),
    ),
    "other memory": (
        lambda g: tandem.symm.rendezvous(tandem.symm.empty(4 + g.rank, group=g), g),
        (MISMATCH, MISMATCH),
    ),
    "no memory": (
        only(
            1,
            lambda g: tandem.symm.rendezvous(HANDLE, g),
            lambda g: tandem.symm.rendezvous(tandem.symm.empty(4, group=g), g),
        ),
        (MISMATCH, "INVALID_ARGUMENT"),
    ),
    "other pad": (
        lambda g: (
            tandem.symm.set_signal_pad_size(64 * (1 + g.rank), g),
            tandem.symm.rendezvous(tandem.symm.empty(4, group=g), g),
        ),
        (MISMATCH, MISMATCH),
    ),
    "dim of another kind": (
        only(1, refused_here(lambda g: tandem.fused_all_gather_matmul(A, B, 0.5, group=g)), gather),
        ((MISMATCH, "rank 1 refused"), (MISMATCH, "rank 1 refused")),
    ),
    "stream of another kind": (
        only(1, refused_here(lambda g: tandem.all_gather(A, group=g, stream=3)), gather),
        ((MISMATCH, "rank 1 refused"), (MISMATCH, "rank 1 refused")),
    ),
    "type of another kind": (
        only(
            1,
            refused_here(lambda g: tandem.fused_scaled_matmul_reduce_scatter(A, B, out_dtype=object(), group=g)),
            gather,
        ),
        ((MISMATCH, "rank 1 refused"), (MISMATCH, "rank 1 refused")),
    ),
    "handle of another kind": (
        only(1, refused_here(lambda g: tandem.fused_all_gather_matmul(A, B, a_handle=3, group=g)), gather),
        ((MISMATCH, "rank 1 refused"), (MISMATCH, "rank 1 refused")),
    ),
    "poison": (
        only(1, lambda g: (g.poison("rank 1 has enough", 1), g.check())),
        (("PEER_LOST", "rank 1 has enough"), ("PEER_LOST", "rank 1 has enough")),
    ),
    "closed": (only(1, lambda g: g.close(), gather), (("PEER_LOST", "rank 1"), None)),
    "same name again": (
        lambda g: tandem.init(name=g.name),
        (("INVALID_ARGUMENT", "rank 0 is taken already"), ("INVALID_ARGUMENT", "rank 1 is taken already")),
    ),
    "other name": (
        lambda g: tandem.init(name=f"{g.name} {g.rank}", rendezvous_timeout=1.0),
        (("TIMEOUT", ("'other name 0'", "rank 1 of 2")), ("TIMEOUT", ("'other name 1'", "rank 0 of 2"))),
    ),
    "other members": (
        lambda g: g.subgroup([[0, 1], [1, 0]][g.rank], "pair"),
        (("TIMEOUT", "rank 1 of 2"), "TIMEOUT"),
    ),
    "not a member": (
        lambda g: g.subgroup([1 - g.rank], "other"),
        (("INVALID_ARGUMENT", "rank 0 is not among"), ("INVALID_ARGUMENT", "rank 1 is not among")),
    ),
    "twice a member": (lambda g: g.subgroup([0, 0, 1], "twice"), ("INVALID_ARGUMENT", "INVALID_ARGUMENT")),
    "members of another kind": (lambda g: g.subgroup("01", "text"), ("TypeError", "TypeError")),
    "opposite order": (
        with_second(in_opposite_order),
        ((MISMATCH, "circle of waits"), (MISMATCH, "circle of waits")),
    ),
    "mixed up": (with_second(mixed_up), (("TIMEOUT", "rank 1"), ("TIMEOUT", "rank 0"))),
    "no signal": (
        lambda g: tandem.symm.rendezvous(tandem.symm.empty(4, group=g), g).wait_signal(1 - g.rank, timeout=0.5),
        ("TIMEOUT", "TIMEOUT"),
    ),
    "signal twice": (
        only(
            0,
            lambda g: [tandem.symm.rendezvous(tandem.symm.empty(4, group=g), g).put_signal(1, timeout=1) for _ in "12"],
            lambda g: (tandem.symm.rendezvous(tandem.symm.empty(4, group=g), g), await_error(g)),
        ),
        ("TIMEOUT", "TIMEOUT"),
    ),
}


@functools.cache
def different():
    return tandem.launch(run_cases, 2, {name: case for name, (case, _) in DIFFERENT.items()}, 3.0)


@pytest.mark.parametrize("name", DIFFERENT)
def test_ranks_that_differ(name):
    for rank, expected in enumerate(DIFFERENT[name][1]):
        check(different()[rank][name], expected, f"rank {rank}")


PROGRAM = """
import os, sys, numpy, tandem
rank, how = int(sys.argv[1]), sys.argv[2]
group = tandem.init(rank, 2, job=sys.argv[3])
group.meet()
try:
    if rank == 1:
        if how == "raise":
            raise LookupError("rank 1 has no such key")
        if how == "exit":
            sys.exit(3)
        if how == "_exit":
            os._exit(3)
        os.kill(os.getpid(), 9)
    tandem.all_gather(numpy.zeros((2, 2)))
except tandem.Error as error:
    print(error.code.name, error.peer)
"""


@pytest.mark.parametrize("how", ["raise", "exit", "_exit", "kill"])
def test_a_rank_that_ends_between_calls(how):
    """Without tandem.launch(): each rank is a program of its own."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), how, f"ends by {how}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    (output, _), (_, errors) = (process.communicate(timeout=120) for process in processes)
    assert output == "PEER_LOST 1\n", output
    assert processes[0].returncode == 0 and processes[1].returncode != 0
    assert how != "raise" or "LookupError: rank 1 has no such key" in errors


# ---- fork ----


def forks(make):
    """A case: what a child of rank 1 gets. The group goes on in the parent."""

    def case(group):
        outcome = in_child(make(group)) if group.rank == 1 else None
        group.meet()
        assert tandem.all_gather(A, group=group).shape == (8, 8)
        return outcome

    return case


def with_handle(call):
    def make(group):
        handle = tandem.symm.rendezvous(tandem.symm.empty(4, group=group), group)
        return lambda: call(handle)

    def case(group):
        made = make(group)
        return forks(lambda _: made)(group)

    return case


def with_stream(call):
    return forks(lambda group: functools.partial(call, group, group.create_stream()))


def close_and_leave(group):
    stream, device = group.create_stream, group.device
    group.close()
    tandem.finalize()
    del stream, device
    gc.collect()
    return "closed"


def start_anew():
    """In the child: what does not belong to the parent."""
    with tandem.init(0, 1, name="own") as own:
        tandem.symm.rendezvous(tandem.symm.empty(4)).barrier()
        shape = tandem.fused_all_gather_matmul(A, B).out[0].shape
        stream = own.create_stream()
        tandem.all_gather(A, stream=stream)
        stream.synchronize()
    return shape, tandem.launch(lambda rank, size: tandem.init().size, 2)


def by_multiprocessing(group):
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    process = context.Process(target=lambda: results.put(outcome_of(gather, group)))
    process.start()
    outcome = results.get()
    process.join()
    assert process.exitcode == 0
    return outcome


FORKED = ("INVALID_ARGUMENT", ("was made in process", "fork()", "make a new one after the fork"))
OF_GROUP = (FORKED[0], ("group 'tandem", "' was made in process"))
FORKS = {
    "all_gather": (forks(lambda g: lambda: gather(g)), FORKED),
    "fused": (forks(lambda g: lambda: tandem.fused_all_gather_matmul(A, B, group=g)), FORKED),
    "wrong arguments": (forks(lambda g: lambda: tandem.fused_all_gather_matmul(A, B[1:], group=g)), "INVALID_ARGUMENT"),
    "no array": (forks(lambda g: lambda: tandem.all_gather("text", group=g)), "TypeError"),
    "meet": (forks(lambda g: g.meet), FORKED),
    "check": (forks(lambda g: g.check), FORKED),
    "all_gather_bytes": (forks(lambda g: lambda: g.all_gather_bytes(b"x")), FORKED),
    "subgroup": (forks(lambda g: lambda: g.subgroup([1], "one")), FORKED),
    "poison": (forks(lambda g: lambda: g.poison("the child has enough", 1)), None),
    "close": (forks(lambda g: lambda: close_and_leave(g)), None),
    "nothing": (forks(lambda g: lambda: None), None),
    "default group": (forks(lambda g: lambda: tandem.all_gather(A)), FORKED),
    "init": (forks(lambda g: lambda: tandem.init()), FORKED),
    "init of the same name": (forks(lambda g: lambda: tandem.init(name=g.name)), FORKED),
    "mm": (forks(lambda g: lambda: tandem.mm(A, B).shape), None),
    "mm on the group's device": (forks(lambda g: lambda: tandem.mm(A, B, device=g)), FORKED),
    "a group of its own": (forks(lambda g: start_anew), None),
    "symm.empty": (forks(lambda g: lambda: tandem.symm.empty(4, group=g)), FORKED),
    "create_stream": (forks(lambda g: g.create_stream), FORKED),
    "stream": (with_stream(lambda g, stream: tandem.mm(A, B, stream=stream)), FORKED),
    "synchronize": (with_stream(lambda g, stream: stream.synchronize()), FORKED),
    "barrier": (with_handle(lambda handle: handle.barrier()), FORKED),
    "put_signal": (with_handle(lambda handle: handle.put_signal(0)), FORKED),
    "get": (with_handle(lambda handle: handle.get(numpy.zeros(2, F32), 0)), FORKED),
    "buffer": (with_handle(lambda handle: handle.buffer(0, (4,), "f32").sum()), FORKED),
    "multiprocessing": (forks(lambda g: lambda: None), None),
}


def forked(rank, size):
    outcomes = run_cases(rank, size, {name: case for name, (case, _) in FORKS.items()}, 30.0)
    group = tandem.init(name="by multiprocessing")
    outcomes["multiprocessing"] = Outcome(value=by_multiprocessing(group) if rank == 1 else None)
    group.meet()
    return outcomes


@functools.cache
def all_forked():
    return tandem.launch(forked, 2)


@pytest.mark.parametrize("name", FORKS)
def test_fork(name):
    here, parent = (outcomes[name] for outcomes in all_forked())
    assert here.kind is None and parent.kind is None, (here, parent)
    expected = FORKED if name == "multiprocessing" else FORKS[name][1]
    check(parent.value, expected)
    if name == "mm":
        assert parent.value.value == (4, 6)
    if name == "a group of its own":
        assert parent.value.value == ((4, 6), [2, 2])


def test_a_child_that_goes_on_as_its_rank():
    """A child by fork() that does not end, but returns from the function as the rank does."""

    def work(rank, size):
        import os

        tandem.init().meet()
        child = os.fork() if rank == 1 else -1
        if child == 0:
            return "of the child"
        if rank == 1:
            os.waitpid(child, 0)
        tandem.all_gather(A)
        return rank

    assert tandem.launch(work, 2) == [0, 1]


LAUNCHER = """
import os, sys, threading, time
import tandem

def work(rank, size):
    tandem.init().meet()
    if rank == 0:
        os.write(1, b"ready\\n")
    time.sleep(1)
    tandem.default_group().meet()
    return rank

results = []
thread = threading.Thread(target=lambda: results.extend(tandem.launch(work, 2)))
thread.start()
time.sleep(0.5)
child = os.fork()
if child == 0:
    sys.exit(0)
_, status = os.waitpid(child, 0)
thread.join()
print(status, results)
"""


def test_a_child_of_the_launcher():
    """Its end leaves the ranks alone."""
    done = subprocess.run([sys.executable, "-c", LAUNCHER], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == ["ready", "0 [0, 1]"], done


# ---- ^C ----


def waits(call):
    """A case: rank 0 gets ^C in a wait for rank 1, which then hears that rank 0 is gone."""
    return only(0, lambda group: interrupted(call, group))


def wait_in_stream(group):
    stream = group.create_stream()
    tandem.all_gather(A, group=group, stream=stream)
    stream.synchronize()


def close_with_work(group):
    tandem.all_gather(A, group=group, stream=group.create_stream())
    group.close()


INTERRUPTS = {
    "meet": waits(lambda g: g.meet()),
    "all_gather_bytes": waits(lambda g: g.all_gather_bytes(b"x")),
    "subgroup": waits(lambda g: g.subgroup([0, 1], "pair")),
    "rendezvous": waits(lambda g: tandem.symm.rendezvous(tandem.symm.empty(4, group=g), g)),
    "all_gather": waits(gather),
    "fused": waits(lambda g: tandem.fused_all_gather_matmul(A, B, group=g)),
    "synchronize": waits(wait_in_stream),
    "close": waits(close_with_work),
    "init": waits(lambda g: tandem.init(name="never")),
}


def interrupts(rank, size):
    outcomes = {}
    for name, case in INTERRUPTS.items():
        group = tandem.init(name=name, op_timeout=60, rendezvous_timeout=60)
        outcome = outcome_of(case, group) if rank == 0 else None
        if name in ("meet", "all_gather_bytes", "rendezvous"):
            outcomes[f"{name} then"] = outcome_of(await_error, group)
        elif rank == 0:
            with_error = outcome_of(group.poison, f"rank 0 has done with {name}", 0)
            assert with_error.kind is None or "closed" in with_error.text, with_error
        else:
            outcome_of(await_error, group)
        outcomes[name] = outcome
        group.close()
    again = tandem.init(name="never", rendezvous_timeout=60)  # the interrupted rank has left no trace
    again.meet()
    return outcomes


@functools.cache
def all_interrupted():
    return tandem.launch(interrupts, 2)


@pytest.mark.parametrize("name", INTERRUPTS)
def test_interrupt(name):
    own, others = all_interrupted()
    outcome = own[name].value
    assert outcome.kind == "KeyboardInterrupt", outcome
    if f"{name} then" in others:
        for outcomes in (own, others):
            check(outcomes[f"{name} then"], ("PEER_LOST", "rank 0 was interrupted"), name)


def waits_for_ranks(rank, size, who):
    """^C in init(): in rank 0, or in another rank, while one is missing."""
    if rank == 2:
        threading.Event().wait(2)
    outcome = interrupted(tandem.init, name="first") if rank == who else None
    if rank != who and rank != 2 and who == 0:
        outcome = outcome_of(tandem.init, name="first", rendezvous_timeout=60)
    if who == 0:
        return outcome
    group = tandem.init(name="first", rendezvous_timeout=60)  # the rank comes again
    group.meet()
    return outcome


@pytest.mark.parametrize("who", [0, 1])
def test_interrupt_in_init(who):
    outcomes = tandem.launch(waits_for_ranks, 3, who)
    assert outcomes[who].kind == "KeyboardInterrupt", outcomes[who]
    if who == 0:
        check(outcomes[1], ("PEER_LOST", "rank 0 was interrupted"))


ALONE = """
import os, signal, sys, threading, numpy, tandem
signal.signal(signal.SIGINT, signal.default_int_handler)
stream = tandem.Device().create_stream()
words, ones = numpy.zeros(2, numpy.uint32), numpy.ones((2, 2), numpy.float32)
calls = {
    "rank 0": lambda: tandem.init(0, 2, job="nobody"),
    "rank 1": lambda: tandem.init(1, 2, job="nobody"),
    "async_input_mm": lambda: tandem.async_input_mm(ones, ones, words),
}
timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
timer.start()
try:
    calls[sys.argv[1]]()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    words[:] = 1  # what queued work still waits for
"""


@pytest.mark.parametrize("name", ["rank 0", "rank 1", "async_input_mm"])
def test_interrupt_of_a_program(name):
    done = subprocess.run(
        [sys.executable, "-c", ALONE, name], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.returncode) == ("interrupted\n", 0), done


def test_a_signal_that_raises_nothing():
    """A wait goes on after a signal whose handler returns."""

    def work(rank, size):
        import os

        group = tandem.init(rendezvous_timeout=60)
        seen = []
        signal.signal(signal.SIGUSR1, lambda *_: seen.append("signal"))
        if rank == 1:
            threading.Event().wait(1)
        else:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        group.meet()
        return seen

    assert tandem.launch(work, 2) == [["signal"], []]
