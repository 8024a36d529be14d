"""The program of a rank, which only tandem.launch() starts."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback

import cloudpickle

from . import _core, _group, _launch
from ._errors import Error, ErrorCode

_START_S = 60.0
_SIGNAL_S = 0.5
_INTERRUPTED = 130


def _without_own_frames(error: BaseException) -> str:
    trace = error.__traceback__.tb_next if error.__traceback__ else None
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip()


def _report(context: _core.RankContext, error: BaseException) -> None:
    text = f"rank {context.rank} failed: {type(error).__name__}: {error}"
    _group.poison_default(text, context.rank)
    trace = _without_own_frames(error)
    try:
        _launch.send(context.store, _launch.failure_key(context.rank), (error, trace))
    except Exception:  # an exception that cannot be pickled
        stand_in = Error(ErrorCode.INTERNAL, text, rank=context.rank)
        _launch.send(context.store, _launch.failure_key(context.rank), (stand_in, trace))
    is_victim = isinstance(error, Error) and error.code is ErrorCode.PEER_LOST
    context.report_failure(is_victim, text)


def _work(context: _core.RankContext) -> int:
    try:
        path, task = _launch.receive(context.store, _launch.TASK_KEY, _START_S)
        sys.path[:] = path
        fn, args, kwargs = cloudpickle.loads(task)
        result = fn(context.rank, context.size, *args, **kwargs)
        _launch.send(context.store, _launch.result_key(context.rank), result)
        return 0
    except KeyboardInterrupt:
        # Not before all ranks have the signal: one that leaves would be the reason of another's error.
        with contextlib.suppress(Error):
            _launch.receive(context.store, _launch.INTERRUPTED_KEY, _SIGNAL_S)
        return _INTERRUPTED
    except Exception as error:
        _report(context, error)
        return 1


def main() -> int:
    """Works as the rank that the command line says."""
    os.setpgrp()  # a terminal's ^C is for the launcher, which passes it on once
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno() if sys.stdin else 0)  # a process in the background may not read from a terminal
    os.close(nothing)
    return _work(_group.join_launched_job(sys.argv))

