"""Timelines: when the steps of a group's ops run, on every rank."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from . import _core
from ._group import group_or_default

_MAX_EVENTS = 1 << 17


class Timeline:
    """Notes when each step of a group's ops runs, on all ranks and one clock, inside a `with` block.

    Begin and leave the block between the same ops on all ranks. Meanwhile calls are not launched as graphs.

        with tandem.Timeline() as timeline:
            tandem.fused_all_gather_matmul(a, b)
            summary = timeline.save("trace")  # on all ranks

    Args:
        group: the group whose ops are noted; by default that of init().
        max_events: how many events this rank has room for. What finds none is counted.

    Raises:
        Error: INVALID_ARGUMENT for a `max_events` outside [1, 500000]; UNSUPPORTED where streams cannot take times.
    """

    def __init__(self, group: _core.Group | None = None, *, max_events: int = _MAX_EVENTS) -> None:
        self._timeline = _core.GroupTimeline(group_or_default(group), max_events)

    def __enter__(self) -> Timeline:
        self._timeline.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._timeline.stop()

    def save(self, folder: str | os.PathLike[str]) -> dict[str, Any]:
        """Waits for queued work, and returns what the time went to since the last save(): a collective call of all ranks.

        Rank 0 writes `trace.json` and `trace.html` into the folder. The result is the part `tandem` of the JSON: sums of
        each rank, and of each op and algorithm, in us; the slowest rank; the losses.

        Raises:
            Error: on rank 0, DRIVER or INVALID_ARGUMENT with the path, if nothing can be written there.
        """
        text = self._timeline.save(os.fspath(folder), " ".join(sys.argv))
        return json.loads(text)["tandem"]
