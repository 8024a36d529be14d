"""Misuse: each a clear exception on every rank, and nothing hangs."""

import os
import pickle
import signal
import time

import numpy
import pytest
from reference import BF16, F32, random

import tandem


def caught(call, *arguments, **named):
    with pytest.raises(tandem.Error) as error:
        call(*arguments, **named)
    return error.value


@pytest.fixture
def group():
    with tandem.init() as made:
        yield made


A = random((4, 8), F32, 1)
B = random((8, 6), F32, 2)


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"a": A, "b": random((7, 6), F32, 2)}, r"b\[0\] has sizes \[7, 6\], need \[8, n\]"),
        ({"a": A, "b": B.astype(BF16)}, "bf16"),
        ({"a": A, "b": B[0]}, r"b\[0\]|matri"),
        ({"a": A, "b": []}, "b"),
        ({"a": A, "b": B, "gather_dim": 2}, "gather_dim is 2, need 0 to 1"),
        ({"a": A, "b": B, "gather_dim": -1}, "gather_dim is -1, need 0 to 1"),
        ({"a": A, "b": B, "gather_size": 5}, "5"),
        ({"a": A, "b": B, "algorithm": "fastest"}, "need auto, native, pipelined or serial"),
        ({"a": A, "b": B, "out": numpy.zeros((4, 5), F32)}, "out"),
        ({"a": A, "b": B, "out": numpy.zeros((4, 6), BF16)}, "bf16"),
        ({"a": A.astype(numpy.int32), "b": B.astype(numpy.int32)}, "i32"),
        ({"a": A.astype(numpy.complex64), "b": B}, "a is of NumPy's type complex64"),
        ({"a": A.astype(">f4"), "b": B}, "bytes in the other order"),
        ({"a": A[::-1], "b": B}, "a has a negative stride"),
        ({"a": A, "b": numpy.zeros((1,) * 9, F32)}, "9 dimensions"),
        ({"a": A, "b": B, "bias": numpy.zeros(5, F32)}, "bias"),
    ],
)
def test_fused_all_gather_matmul(group, arguments, text):
    error = pytest.raises(tandem.Error, tandem.fused_all_gather_matmul, **arguments)
    error.match(text)
    assert error.value.code in (tandem.ErrorCode.INVALID_ARGUMENT, tandem.ErrorCode.UNSUPPORTED)
    group.check()  # nothing was poisoned but this call
    assert tandem.fused_all_gather_matmul(A, B).out[0].shape == (4, 6)


@pytest.mark.parametrize("wrong", [[[1.0]], 3, "text", object()], ids=["list", "int", "str", "object"])
def test_no_array(group, wrong):
    for call in (tandem.fused_all_gather_matmul, tandem.mm):
        with pytest.raises(TypeError, match="a: got a .*, need an array"):
            call(wrong, B)
    with pytest.raises(TypeError, match="input: got a .*, need an array"):
        tandem.all_gather(wrong)


def test_a_read_only_output(group):
    out = numpy.zeros((4, 6), F32)
    out.flags.writeable = False
    assert "read-only" in caught(tandem.fused_all_gather_matmul, A, B, out=out).text
    locked = A.copy()
    locked.flags.writeable = False
    assert tandem.fused_all_gather_matmul(locked, B).out[0].shape == (4, 6)


def test_outputs_that_overlap(group):
    memory = numpy.zeros(100, F32)
    error = caught(tandem.mm, memory[:16].reshape(4, 4), B[:4, :4].copy(), out=memory[8:24].reshape(4, 4))
    assert error.code is tandem.ErrorCode.INVALID_ARGUMENT and "overlap" in error.text


class Elsewhere:
    """An array of another device."""

    dtype = numpy.dtype("float32")
    shape = (4, 8)

    def __init__(self, device):
        self.device = device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **_):
        raise AssertionError("nobody asks")


@pytest.mark.parametrize("device, text", [((2, 1), "a is on cuda:1, need cpu:0"), ((4, 0), "DLPack's type 4")])
def test_another_device(group, device, text):
    assert text in caught(tandem.fused_all_gather_matmul, Elsewhere(device), B).text


def test_a_stream_that_is_none(group):
    with pytest.raises(TypeError, match="need a tandem.Stream"):
        tandem.mm(A, B, stream=5)


def test_other_memory_in_a_rendezvous(group):
    error = caught(tandem.symm.rendezvous, numpy.zeros(4, F32))
    assert "not symmetric memory" in error.text


def test_scatter_and_scales(group):
    assert "need sum or avg" in caught(tandem.fused_matmul_reduce_scatter, A, B, 0, "max").text
    assert "scatter_dim" in caught(tandem.fused_matmul_reduce_scatter, A, B, 3).text
    assert "one type for each b" in caught(tandem.fused_all_gather_scaled_matmul, A, [B], out_dtype=[]).text
    assert "unknown type" in caught(tandem.mm, A, B, out_dtype="f3").text


def test_an_error_is_a_value():
    error = tandem.Error("Timeout", "rank 0 waited for rank 2", rank=0)
    assert (error.code, error.peer, str(error)) == (tandem.ErrorCode.TIMEOUT, 2, "Timeout: rank 0 waited for rank 2")
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.text, again.rank, again.peer) == (error.code, error.text, 0, 2)


def await_error():
    """Stays in the group until another rank has poisoned it."""
    for _ in range(2000):
        time.sleep(0.01)
        tandem.default_group().check()


def code_and_text(rank, size, call, timeout=20.0):
    tandem.init(op_timeout=timeout, rendezvous_timeout=timeout)
    try:
        call(rank)
    except tandem.Error as error:
        return error.code.name, error.rank, error.text
    return None


def test_ranks_that_differ():
    def call(rank):
        tandem.fused_all_gather_matmul(A[: 2 + rank], B, gather_size=8)

    results = tandem.launch(code_and_text, 2, call)
    assert {code for code, _, _ in results} <= {"MISMATCH", "INVALID_ARGUMENT"}
    assert [rank for _, rank, _ in results] == [0, 1]

    def other_type(rank):
        dtype = (F32, BF16)[rank]
        tandem.fused_all_gather_matmul(A.astype(dtype), B.astype(dtype))

    results = tandem.launch(code_and_text, 2, other_type)
    assert [code for code, _, _ in results] == ["MISMATCH"] * 2


def test_a_wrong_call_on_one_rank():
    def call(rank):
        if rank != 1:
            tandem.fused_all_gather_matmul(A, B)
            return
        with pytest.raises(tandem.Error, match="need .8, n."):
            tandem.fused_all_gather_matmul(A, B[1:])
        await_error()

    results = tandem.launch(code_and_text, 3, call)
    assert [code for code, _, _ in results] == ["MISMATCH"] * 3, results
    assert all("rank 1" in text for _, _, text in results), results


@pytest.mark.parametrize("wrong", ["gathered", "out"])
def test_a_wrong_extra_on_one_rank(wrong):
    def call(rank):
        if rank != 1:
            tandem.fused_all_gather_matmul(A, B)
            return
        with pytest.raises(TypeError, match=f"{wrong}.*: got a str, need an array"):
            tandem.fused_all_gather_matmul(A, B, **{wrong: "text"})
        await_error()

    results = tandem.launch(code_and_text, 2, call)
    assert [code for code, _, _ in results] == ["MISMATCH"] * 2, results


def test_no_array_on_one_rank():
    def call(rank):
        if rank != 1:
            tandem.all_gather(A)
            return
        with pytest.raises(TypeError, match="need an array"):
            tandem.all_gather("text")
        await_error()

    results = tandem.launch(code_and_text, 2, call)
    assert [code for code, _, _ in results] == ["MISMATCH"] * 2, results


def test_a_rank_that_stays_away():
    def call(rank):
        if rank == 1:
            await_error()
        tandem.all_gather(A)

    for code, _, text in tandem.launch(code_and_text, 2, call, 1.0):
        assert code == "TIMEOUT" and "rank 0" in text and "rank 1" in text, text


def test_a_rank_that_dies_inside_an_op():
    def call(rank):
        tandem.default_group().meet()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        tandem.all_gather(A)

    with pytest.raises(tandem.Error) as error:
        tandem.launch(code_and_text, 3, call)
    assert error.value.code is tandem.ErrorCode.PEER_LOST and error.value.rank == 1
