"""What the tests of misuse share: cases that run in one job, and what came of each."""

import contextlib
import os
import pickle
import signal
import sys
import threading
import traceback

import tandem


class Outcome:
    """How a call ended: the name of the exception or None, an Error's code, the text, and what was returned."""

    def __init__(self, error=None, value=None):
        self.kind = None if error is None else type(error).__name__
        self.code = error.code.name if isinstance(error, tandem.Error) else None
        self.text = "" if error is None else str(error)
        self.value = value

    def __repr__(self):
        return f"{self.value!r}" if self.kind is None else f"{self.kind} {self.text}"


def outcome_of(call, *args, **named):
    """What becomes of a call. Only what a program cannot catch goes through."""
    try:
        return Outcome(value=call(*args, **named))
    except (Exception, KeyboardInterrupt) as error:
        return Outcome(error)


def check(outcome, expected, where=""):
    """Whether it is what was expected: a code or the name of an exception, or None, and a part of the text."""
    kind, text = expected if isinstance(expected, tuple) else (expected, "")
    got = outcome.code or outcome.kind
    assert got == kind, f"{where}: got {outcome}, want {kind}"
    for part in (text,) if isinstance(text, str) else text:
        assert part in outcome.text, f"{where}: '{part}' is not in: {outcome.text}"


def run_cases(rank, size, cases, timeout):
    """The outcomes of cases, each with a group of its own, by name."""
    outcomes = {}
    for name, case in cases.items():
        group = tandem.init(name=name, op_timeout=timeout, rendezvous_timeout=timeout)
        outcomes[name] = outcome_of(case, group)
        with contextlib.suppress(tandem.Error):
            group.meet()  # a sound group ends together; one with an error has ended
        group.close()
        tandem.finalize()
    return outcomes


def interrupted(call, *args, **named):
    """The outcome of a call that ^C comes into."""
    timer = threading.Timer(0.6, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        return outcome_of(call, *args, **named)
    finally:
        timer.join()


def in_child(work, leave=sys.exit):
    """The outcome of `work` in a child by fork(), which then ends as programs do: by atexit, with all destructors."""
    sys.stdout.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that hangs is killed
        os.close(reading)
        with os.fdopen(writing, "wb") as file:
            try:
                pickle.dump(outcome_of(work), file)
            except BaseException:
                traceback.print_exc()
        leave(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        data = file.read()
    _, status = os.waitpid(child, 0)
    assert status == 0 and data, f"the child ended with status {status}"
    return pickle.loads(data)
