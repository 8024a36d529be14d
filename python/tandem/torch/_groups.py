"""The tandem group of a process group of PyTorch."""

from __future__ import annotations

import atexit
import dataclasses
import os
import pathlib
import threading
import time
import weakref

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import tandem
from tandem import _core
from tandem._errors import Error, ErrorCode

from ._lane import Lane

GroupLike = dist.ProcessGroup | str


@dataclasses.dataclass
class _Made:
    process_group: weakref.ref[dist.ProcessGroup]
    group: tandem.Group
    server: _core.StoreServer | None  # rank 0 serves the others until the group is closed
    lane: Lane | None = None  # made for the first call that runs on it

    def close(self) -> None:
        try:
            if self.lane is not None:
                self.lane.close()
        finally:
            self.group.close()


_made: dict[tuple[str, str], _Made] = {}
_last: dict[tuple[str, torch.device], _Made] = {}  # of _made, by what an op knows
_devices: dict[str, tandem.Device] = {}
_lock = threading.Lock()
_LOOK_S = 0.01


def name_of(group: GroupLike) -> str:
    """The name by which an op knows a process group."""
    if isinstance(group, dist.ProcessGroup):
        return group.group_name
    if isinstance(group, str):
        return group
    raise TypeError(f"group: got a {type(group).__qualname__}, need a ProcessGroup or its name")


def process_group_of(name: str) -> dist.ProcessGroup:
    """The process group with this name."""
    try:
        return c10d._resolve_process_group(name)
    except (RuntimeError, ValueError) as error:
        raise Error(ErrorCode.INVALID_ARGUMENT, f"group: there is no process group '{name}' here") from error


def size_of(name: str) -> int:
    """The number of ranks of a process group. No tandem group is made."""
    return process_group_of(name).size()


def rank_of(name: str) -> int:
    """This rank's number in a process group. No tandem group is made."""
    return process_group_of(name).rank()


def _host() -> str:
    return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _read(store: dist.Store, keys: list[str], rank: int, name: str) -> list[str]:
    timeout = _core.rendezvous_timeout()
    deadline = time.monotonic() + timeout
    # Not store.wait(), which ^C does not end.
    while missing := [key for key in keys if not store.check([key])]:
        if time.monotonic() > deadline:
            text = f"rank {rank} waited {timeout:g} s in process group '{name}' for {', '.join(missing)}"
            raise Error(ErrorCode.TIMEOUT, text, rank=rank)
        time.sleep(_LOOK_S)
    return [store.get(key).decode() for key in keys]


def _check_hosts(hosts: list[str], rank: int, name: str) -> None:
    for other, host in enumerate(hosts):
        if host != hosts[rank]:
            raise Error(
                ErrorCode.UNSUPPORTED,
                f"process group '{name}': ranks {rank} and {other} are on different hosts, need one host",
                rank=rank,
            )


def _create(process_group: dist.ProcessGroup, device: str) -> _Made:
    """Rank 0 serves tandem's store and publishes its address in the process group's store."""
    rank, size, name = process_group.rank(), process_group.size(), process_group.group_name
    server = None
    turn = 0
    if size == 1:
        store = _core.make_in_process_store()
    else:
        shared = c10d._get_process_group_store(process_group)
        prefix = f"tandem/{device.partition(':')[0]}"
        # A store can outlive a process group and its tandem group. Every rank counts itself once for each of them.
        turn = (shared.add(f"{prefix}/count", 1) - 1) // size
        prefix = f"{prefix}/{turn}"
        shared.set(f"{prefix}/host of rank {rank}", _host())
        _check_hosts(_read(shared, [f"{prefix}/host of rank {r}" for r in range(size)], rank, name), rank, name)
        if rank == 0:
            server = _core.StoreServer()
            path, token = server.listen(size - 1)
            store = server.local()
            shared.set(f"{prefix}/address", f"{path}\n{token}")
        else:
            path, token = _read(shared, [f"{prefix}/address"], rank, name)[0].split("\n")
            store = _core.open_store(path, token, _core.rendezvous_timeout())
    group = _core.create_group(
        rank=rank,
        size=size,
        store=store,
        device=device,
        device_index=0,
        name=f"torch {name} {device.partition(':')[0]} {turn}",
        op_timeout=None,
        rendezvous_timeout=None,
        batch_invariant=None,
        nan_check=None,
        fault=None,
    )
    return _Made(weakref.ref(process_group), group, server)


def _device_name(device: torch.device | str) -> str:
    if not isinstance(device, (torch.device, str)):
        raise TypeError(f"device: got a {type(device).__qualname__}, need a torch.device or its name")
    try:
        device = torch.device(device)
    except RuntimeError as error:
        raise Error(ErrorCode.INVALID_ARGUMENT, f"device is '{device}', need cpu or cuda") from error
    if device.type == "cpu":
        return "cpu"
    if device.type != "cuda":
        raise Error(ErrorCode.UNSUPPORTED, f"tensors are on {device}, need cpu or cuda")
    return f"cuda:{torch.cuda.current_device() if device.index is None else device.index}"


def group_of(group: GroupLike, device: torch.device | str = "cpu") -> tandem.Group:
    """Returns the tandem group of a process group, for tensors on `device`. The ops call it.

    The first call for a process group and a kind of device is a collective call of its ranks, and blocks until they are
    there. Rank 0 publishes an address in the process group's store. Later calls return the same group. Call it before a
    first op that must not block, such as one that is captured in a graph.

    Args:
        group: a ProcessGroup, or its name. Its ranks are on one host.
        device: that of this rank's tensors: a CPU, or this rank's GPU.

    Raises:
        Error: INVALID_ARGUMENT if there is no such process group; UNSUPPORTED for ranks on several hosts, or without
            such a device; TIMEOUT with the ranks that did not come.
    """
    return _known(name_of(group), device).group


def lane_of(name: str, device: torch.device) -> Lane:
    """The lane of the tandem group of a process group, which is there already."""
    known = _known(name, device)
    if known.lane is None:
        known.lane = Lane(known.group, name)
    return known.lane


def _known(name: str, device: torch.device | str) -> _Made:
    process_group = process_group_of(name)
    if not isinstance(device, torch.device):
        return _made_for(process_group, device)
    known = _last.get((name, device))
    if known is None or known.process_group() is not process_group or known.group.is_closed:
        known = _last[name, device] = _made_for(process_group, device)
    return known


def _made_for(process_group: dist.ProcessGroup, device: torch.device | str) -> _Made:
    key = process_group.group_name, _device_name(device)
    with _lock:
        made = _made.get(key)
        if made is not None and made.process_group() is process_group:
            if made.group.is_closed:
                text = f"process group '{key[0]}': the group is closed, need tandem.torch.close_groups() on all ranks"
                raise Error(ErrorCode.INVALID_ARGUMENT, text)
            return made
        if made is not None:  # of a process group that was destroyed
            made.close()
            del _made[key]
        _made[key] = _create(process_group, key[1])
        return _made[key]


def device_of(tensor: torch.Tensor) -> tandem.Device:
    """The device of an op without a group."""
    name = _device_name(tensor.device)
    with _lock:
        if name not in _devices:
            _devices[name] = tandem.Device(name)
        return _devices[name]


def close_groups() -> None:
    """Ends every tandem group that the ops have made. The end of the process does so too.

    Call it before torch.distributed.destroy_process_group(). Every rank calls it after the last op.
    """
    with _lock:
        _last.clear()
        while _made:
            _made.popitem()[1].close()


def _after_fork() -> None:
    """In the child: another thread of the parent may have held the lock, and the devices are the parent's."""
    global _lock

    _lock = threading.Lock()
    _devices.clear()


atexit.register(close_groups)
os.register_at_fork(after_in_child=_after_fork)
