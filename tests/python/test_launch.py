"""launch(): results, the first error, ^C."""

import os
import signal
import subprocess
import sys
import time

import numpy
import pytest

import tandem


def numbers(rank, size, factor=1):
    return rank * factor, size


def test_results_in_rank_order():
    assert tandem.launch(numbers, 3) == [(0, 3), (1, 3), (2, 3)]
    assert tandem.launch(numbers, 2, 5) == [(0, 2), (5, 2)]
    assert tandem.launch(numbers, ranks=1, factor=2) == [(0, 1)]


def test_a_local_function_and_large_results():
    data = numpy.arange(300_000)
    results = tandem.launch(lambda rank, size: data + rank, 2)
    assert (results[1] == data + 1).all()


def test_too_few_ranks():
    with pytest.raises(tandem.Error, match="0 ranks, need at least 1"):
        tandem.launch(numbers, 0)


def raises(rank, size):
    tandem.init()
    if rank == 1:
        raise LookupError("rank 1 has no such key")
    tandem.all_gather(numpy.zeros((2, 2)))  # never complete


def test_the_first_error_is_raised():
    with pytest.raises(LookupError, match="no such key") as caught:
        tandem.launch(raises, 3)
    assert "raised by rank 1" in caught.value.__notes__[0] and "LookupError" in caught.value.__notes__[0]


def test_what_the_others_see():
    def work(rank, size):
        try:
            raises(rank, size)
        except tandem.Error as error:
            assert error.code is tandem.ErrorCode.PEER_LOST and error.rank == rank and error.peer == 1, error.text
            raise RuntimeError(f"{error.text}") from None

    with pytest.raises((LookupError, RuntimeError), match="no such key"):
        tandem.launch(work, 2)


class Unpicklable(Exception):
    def __init__(self, text, lock):
        super().__init__(text)
        self.lock = lock


def test_an_exception_that_cannot_be_sent():
    def work(rank, size):
        import threading

        raise Unpicklable("with a lock", threading.Lock())

    with pytest.raises(tandem.Error, match="Unpicklable: with a lock") as caught:
        tandem.launch(work, 1)
    assert caught.value.rank == 0


@pytest.mark.parametrize("how", ["exit", "kill", "sys.exit"])
def test_a_rank_that_ends_without_a_word(how):
    def work(rank, size):
        tandem.init()
        if rank == 1 and how == "exit":
            os._exit(3)
        if rank == 1 and how == "sys.exit":
            sys.exit(3)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        tandem.all_gather(numpy.zeros((2, 2)))

    with pytest.raises(tandem.Error) as caught:
        tandem.launch(work, 3)
    assert caught.value.code is tandem.ErrorCode.PEER_LOST and caught.value.rank == 1, caught.value
    assert ("signal 9" if how == "kill" else "exit code 3") in caught.value.text


INTERRUPTED = """
import os, sys, time
import numpy, tandem

def work(rank, size):
    tandem.init()
    try:
        os.write(1, b"ready\\n")
        if {in_op} and rank == 0:
            time.sleep(60)
        elif {in_op}:
            tandem.all_gather(numpy.zeros((2, 2)))
        else:
            time.sleep(60)
    except KeyboardInterrupt:
        os.write(1, b"tidied up\\n")
        raise

try:
    tandem.launch(work, 2)
except KeyboardInterrupt:
    os.write(1, b"interrupted\\n")
    sys.exit(7)
"""


@pytest.mark.parametrize("in_op", [False, True], ids=["python", "op"])
@pytest.mark.parametrize("whom", ["launcher", "terminal"])
def test_interrupt(in_op, whom):
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.format(in_op=in_op)], stdout=subprocess.PIPE, text=True, process_group=0
    )
    assert process.stdout.readline() == "ready\n" and process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    if whom == "launcher":
        process.send_signal(signal.SIGINT)
    else:
        os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 7
    assert output.splitlines() == ["tidied up", "tidied up", "interrupted"]


def test_ranks_end_with_a_launcher_that_is_killed():
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.format(in_op=False)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n" and process.stdout.readline() == "ready\n"
    process.kill()
    assert process.stdout.read() == ""  # returns when the ranks, who hold the other end, are gone
    process.wait()
