"""launch(): a job of this Python."""

from __future__ import annotations

import mmap
import numbers
import os
import pathlib
import signal
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import cloudpickle

from . import _core
from ._errors import Error, ErrorCode

T = TypeVar("T")

INTERRUPTED_KEY = "python/interrupted"
TASK_KEY = "python/task"
# Finds this package wherever it was found here, and nothing in the working folder.
_RANK_PROGRAM = f"""import sys
sys.path.insert(0, {str(pathlib.Path(__file__).resolve().parent.parent)!r})
from tandem._rank import main
sys.exit(main())"""
_READ_S = 30.0
_MOST_GRACE_S = 1e6
_LOOK_S = 0.05


def result_key(rank: int) -> str:
    """Where a rank leaves its result."""
    return f"python/result/{rank}"


def failure_key(rank: int) -> str:
    """Where a rank leaves the exception that ended it."""
    return f"python/failure/{rank}"


def send(store: _core.Store, key: str, value: Any) -> None:
    """Publishes a value of any size: a file without a name carries its pickle."""
    with os.fdopen(os.memfd_create("tandem-pickle", os.MFD_CLOEXEC), "w+b") as file:
        cloudpickle.dump(value, file)
        file.flush()
        store.set_file(key, file.fileno())


def receive(store: _core.Store, key: str, timeout: float) -> Any:
    """Waits for a value that send() has published. Raises Error TIMEOUT."""
    fd = store.get_file(key, timeout)
    try:
        # Mapped, not read: all ranks' descriptors of one file share its position.
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as data:
            return cloudpickle.loads(data)
    finally:
        os.close(fd)


def _raise_first_error(job: _core.Job) -> None:
    rank, code, text = job.outcome()
    if rank < 0:
        return
    try:
        error, trace = receive(job.store, failure_key(rank), 0.01)
    except Error:
        raise Error(ErrorCode(code), text, rank=rank, peer=rank) from None  # it ended without a word
    error.add_note(f"raised by rank {rank}:\n{trace}")
    raise error


def launch(fn: Callable[..., T], ranks: int = 4, *args: Any, grace: float = 2.0, **kwargs: Any) -> list[T]:
    """Calls fn(rank, size, *args, **kwargs) in `ranks` processes of this Python and returns the results in rank order.

    In each of them, tandem.init() makes the group of all ranks. `fn` and its results travel by cloudpickle, so that
    functions of scripts and notebooks do, and no `if __name__ == "__main__"` is needed. The processes are new: they do
    not share what this one has imported or computed, other than what `fn` refers to. They end with this process. ^C
    raises KeyboardInterrupt in all of them, and in the caller.

    Args:
        fn: the function of a rank.
        ranks: how many processes, from 1 on.
        grace: seconds that the other ranks have to end after one has failed, or after ^C. They are killed then.

    Raises:
        The exception of the rank that failed first, with that rank's traceback as a note; Error PEER_LOST if that
        rank ended without one, with `.rank`.
    """
    if not callable(fn):
        raise TypeError(f"fn: got a {type(fn).__qualname__}, need a function")
    if not isinstance(ranks, numbers.Integral):
        raise TypeError(f"ranks: got a {type(ranks).__qualname__}, need an int")
    if ranks < 1:
        raise Error(ErrorCode.INVALID_ARGUMENT, f"launch: {ranks} ranks, need at least 1")
    if not 0 <= grace <= _MOST_GRACE_S:
        raise Error(ErrorCode.INVALID_ARGUMENT, f"launch: grace is {grace:g} s, need 0 to {_MOST_GRACE_S:g}")
    sys.stdout.flush()  # or the ranks' lines come before earlier ones
    job = _core.Job(int(ranks), sys.executable, ["-P", "-c", _RANK_PROGRAM], grace)
    try:
        send(job.store, TASK_KEY, (list(sys.path), cloudpickle.dumps((fn, args, kwargs))))
        while not job.wait(_LOOK_S):
            pass
    except KeyboardInterrupt:
        job.send_signal(signal.SIGINT)
        send(job.store, INTERRUPTED_KEY, True)
        job.wait(grace)
        raise
    finally:
        job.end()
    _raise_first_error(job)
    return [receive(job.store, result_key(rank), _READ_S) for rank in range(ranks)]
