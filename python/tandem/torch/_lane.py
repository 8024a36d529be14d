"""The stream beside the current one, on which a group's low-contention collectives run.

A result is registered with PyTorch, whose `wait_tensor` then finds the call's work and waits for it. On CPUs the host
waits, on GPUs the stream that is current then.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d

import tandem
from tandem._errors import Error

_log = logging.getLogger("tandem")
_NO_TIME = datetime.timedelta(0)


class _Work(c10d.Work):
    """A call on a lane. PyTorch keeps it until it is waited for, and for good where nobody waits."""

    def __init__(self, lane: Lane, event: Any) -> None:
        super().__init__()
        self._lane = lane
        self.event = event

    def wait(self, timeout: datetime.timedelta = _NO_TIME) -> bool:
        """As PyTorch's low-contention ops, it has no timeout of its own: the group's ops have one."""
        self._lane.wait_for(self)
        return True


class Lane:
    """The lane of a group, and its calls that nobody has waited for."""

    def __init__(self, group: tandem.Group, name: str) -> None:
        self._group, self._name = group, name
        gpu = group.device.gpu
        # A stream of PyTorch, whose allocator then knows which memory the calls use. On CPUs the stream keeps it.
        self._gpu_stream = None if gpu is None else torch.cuda.Stream(gpu)
        self._stream = group.create_stream() if gpu is None else group.device.adopt(self._gpu_stream.cuda_stream)
        self._unwaited: dict[int, _Work] = {}  # by id()
        self._is_closed = False
        self._error: Error | None = None  # of calls that nobody had waited for then

    def run(self, input: torch.Tensor, out: torch.Tensor, call: Callable[..., Any]) -> torch.Tensor:
        """Enqueues `call(input, out=..., stream=...)` behind the current stream, and registers its work for `out`."""
        on = self._gpu_stream
        if on is not None:
            on.wait_stream(torch.cuda.current_stream(on.device))
        call(input, out=out, stream=self._stream)
        if on is not None:
            input.record_stream(on)
            out.record_stream(on)
        event = self._stream.record() if on is None else on.record_event()
        work = _Work(self, event)
        self._unwaited[id(work)] = work
        c10d._register_work(out, work)
        return out

    def wait_for(self, work: _Work) -> None:
        """Waits for a call. Raises its error; on GPUs, what is known by then."""
        self._unwaited.pop(id(work), None)
        if self._error is not None:
            raise self._error
        event, work.event = work.event, None
        if self._gpu_stream is not None and event is not None:
            torch.cuda.current_stream(self._gpu_stream.device).wait_event(event)
        elif event is not None:
            event.synchronize()
        if not self._is_closed:
            self._group.check()

    def close(self) -> None:
        """Waits for all calls, if the group is open still. An error that nobody has waited for is logged. A later wait
        raises it."""
        self._is_closed = not self._group.is_closed
        if not self._unwaited or not self._is_closed:
            return
        try:
            self._stream.synchronize()
            self._group.check()
        except Error as error:
            self._error = error
            _log.warning(
                "process group '%s': nobody has waited for a low-contention collective, which failed: %s",
                self._name,
                error,
            )
