"""Errors of tandem as exceptions."""

from __future__ import annotations

import enum
import re
from typing import Any


class ErrorCode(enum.Enum):
    """The ways in which a call can fail. They differ in what the caller can do."""

    INVALID_ARGUMENT = "InvalidArgument"  #: the call's arguments are wrong; nothing was enqueued
    MISMATCH = "Mismatch"  #: the ranks' calls differ; every rank gets this error
    UNSUPPORTED = "Unsupported"  #: the call is correct but not possible here; the text says why
    OUT_OF_MEMORY = "OutOfMemory"  #: there is not enough memory; the text says how much was asked for
    TIMEOUT = "Timeout"  #: a deadline passed; the text says who waited for whom and for what
    PEER_LOST = "PeerLost"  #: a rank died, left or failed; the text names it
    NUMERIC = "Numeric"  #: a value check failed
    DRIVER = "Driver"  #: the system or a driver refused a call; `native_code` is its code
    PARSE = "Parse"  #: a file or a text is malformed; the text says where
    INTERNAL = "Internal"  #: a bug in tandem


_ABOUT_PEERS = {ErrorCode.MISMATCH, ErrorCode.TIMEOUT, ErrorCode.PEER_LOST}


class Error(RuntimeError):
    """What went wrong, with the values: what was given, what is needed, and where.

    Attributes:
        code: an `ErrorCode`.
        text: the text without the code.
        rank: the rank of the group on which the call failed; from `launch`, the rank that failed first. None if no
            group is involved.
        peer: the other rank that the text tells of, for TIMEOUT, PEER_LOST and MISMATCH; None if there is none.
        native_code: errno or a driver's code; 0 where there is none.
    """

    def __init__(
        self, code: ErrorCode | str, text: str, rank: int | None = None, peer: int | None = None, native_code: int = 0
    ):
        self.code = ErrorCode(code)
        self.text = text
        self.rank = rank
        self.peer = _peer_in(text, rank) if peer is None and self.code in _ABOUT_PEERS else peer
        self.native_code = native_code
        super().__init__(f"{self.code.value}: {text}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Error, (self.code, self.text, self.rank, self.peer, self.native_code)


def _peer_in(text: str, rank: int | None) -> int | None:
    # "rank 2 waited in agree for rank 1": the one that is waited for, unless that is this rank.
    for number in re.findall(r"\bfor rank (\d+)", text) + re.findall(r"\brank (\d+)", text):
        if int(number) != rank:
            return int(number)
    return None
