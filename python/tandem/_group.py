"""Groups: how ranks find each other."""

from __future__ import annotations

import atexit
import hashlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from . import _core
from ._errors import Error, ErrorCode

_context: _core.RankContext | None = None  # of a process that launch() started
_listeners: list[socket.socket] = []  # that tell the address of a store
_stores: dict[tuple[str, int, int], tuple[_core.Store, _core.StoreServer | None]] = {}
_default: _core.Group | None = None
_default_thread = 0  # that made it
_devices = threading.local()

# (rank, size, ranks of this host) as launchers set them.
_VARIABLES = (
    ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),  # torchrun
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),  # MPICH, Intel MPI
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"),
)
# What tells two jobs of one user apart.
_JOB_VARIABLES = (
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "MASTER_ADDR",
    "MASTER_PORT",
    "PMIX_NAMESPACE",
    "OMPI_MCA_ess_base_jobid",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
)
_CREDENTIALS = struct.Struct("3i")
_LOOK_S = 0.02


def join_launched_job(arguments: list[str]) -> _core.RankContext:
    """Makes this process the rank that launch() started it as."""
    global _context

    _context = _core.join_job(arguments)
    if _context is None:
        raise Error(ErrorCode.INVALID_ARGUMENT, "a rank of a job: only tandem.launch() starts one")
    return _context


def default_group() -> _core.Group:
    """The group of the last init() in this process."""
    if _default is None:
        raise Error(ErrorCode.INVALID_ARGUMENT, "no group: call tandem.init() first, or pass group=")
    return _default


def group_or_default(group: Any) -> _core.Group:
    """The group of a call that takes `group=`."""
    if group is None:
        return default_group()
    if isinstance(group, _core.Group):
        return group
    raise TypeError(f"group: got a {type(group).__qualname__}, need a tandem.Group")


def default_device(device: _core.Device | _core.Group | None) -> _core.Device:
    """The device of a call without a group: that of the default group, or else this host's cores.

    A CPU's stream runs one call at a time, so other threads than the default group's have one each.
    """
    if isinstance(device, _core.Group):
        return device.device
    if isinstance(device, _core.Device):
        return device
    if device is not None:
        raise TypeError(f"device: got a {type(device).__qualname__}, need a tandem.Device or a tandem.Group")
    if _default is not None:
        is_own = threading.get_ident() == _default_thread
        if is_own or not _default.device.name.startswith("cpu"):
            return _default.device
    if not hasattr(_devices, "cpu"):
        _devices.cpu = _core.Device("cpu")
    return _devices.cpu


def _number(variable: str) -> int:
    text = os.environ[variable]
    try:
        return int(text)
    except ValueError:
        raise Error(ErrorCode.INVALID_ARGUMENT, f"{variable} is '{text}', need a number") from None


def _rank_and_size() -> tuple[int, int] | None:
    for rank, size, local_size in _VARIABLES:
        if rank in os.environ and size in os.environ:
            here = os.environ.get(local_size, os.environ[size])
            if here.isdigit() and int(here) != _number(size):
                raise Error(
                    ErrorCode.UNSUPPORTED,
                    f"{size} is {os.environ[size]} and {local_size} is {here}: ranks must be on one host",
                )
            return _number(rank), _number(size)
    return None


def _job_name() -> str:
    named = [f"{name}={os.environ[name]}" for name in _JOB_VARIABLES if name in os.environ]
    # Without any, the ranks have their parent in common.
    return " ".join(named) if named else f"parent {os.getppid()}"


def _address_of(job: str) -> bytes:
    """An abstract socket: it has no file, and goes with its process."""
    return b"\0tandem-" + hashlib.sha256(f"{os.getuid()} {job}".encode()).hexdigest()[:40].encode()


def _is_own_user(connection: socket.socket) -> bool:
    got = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(got)[1] == os.getuid()


def _until(deadline: float, what: str, attempt: Callable[[], Any]) -> Any:
    """The first result of `attempt` that is not None."""
    while True:
        result = attempt()
        if result is not None:
            return result
        if time.monotonic() > deadline:
            raise Error(ErrorCode.TIMEOUT, what)
        time.sleep(_LOOK_S)


def _bind(address: bytes) -> socket.socket | None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(address)
        listener.listen(128)
        return listener
    except OSError:
        listener.close()
        return None


def _serve(job: str, size: int, timeout: float) -> tuple[_core.Store, _core.StoreServer]:
    """The store, in rank 0. A thread tells the other ranks where it is, until all know or the time is over."""
    server = _core.StoreServer()
    path, token = server.listen(size - 1)
    deadline = time.monotonic() + timeout
    taken = f"rank 0: another process serves job '{job}'; pass another job= to tandem.init()"
    listener = _until(deadline, taken, lambda: _bind(_address_of(job)))

    _listeners.append(listener)

    def answer() -> None:
        with listener:
            told = 0
            while told < size - 1 and time.monotonic() < deadline:
                listener.settimeout(max(0.001, deadline - time.monotonic()))
                try:
                    connection, _ = listener.accept()
                    with connection:
                        if _is_own_user(connection):
                            connection.sendall(f"{path}\n{token}\n".encode())
                            told += 1
                except OSError:
                    continue
        _listeners.remove(listener)

    threading.Thread(target=answer, name="tandem-address", daemon=True).start()
    return server.local(), server


def _ask(address: bytes) -> tuple[str, str] | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(1.0)
            connection.connect(address)
            if not _is_own_user(connection):
                return None
            with connection.makefile("r", encoding="utf-8") as lines:
                path, token = lines.readline().strip(), lines.readline().strip()
            return (path, token) if token else None
        except OSError:
            return None


def _store_of(job: str, rank: int, size: int, timeout: float) -> _core.Store:
    """The store of a job that launch() has not started."""
    if size == 1:
        return _core.make_in_process_store()
    key = (job, rank, size)
    if key not in _stores:
        if rank == 0:
            _stores[key] = _serve(job, size, timeout)
        else:
            deadline = time.monotonic() + timeout
            missing = f"rank {rank}: rank 0 of {size} did not come within {timeout:g} s (job '{job}')"
            path, token = _until(deadline, missing, lambda: _ask(_address_of(job)))
            _stores[key] = (_core.open_store(path, token, timeout), None)
    return _stores[key][0]


def _find_ranks(rank: int | None, size: int | None, job: str | None, timeout: float) -> tuple[int, int, _core.Store]:
    if (rank is None) != (size is None):
        raise Error(ErrorCode.INVALID_ARGUMENT, f"init: rank={rank} and size={size}, need both or neither")
    if rank is None and job is None and _context is not None:
        return _context.rank, _context.size, _context.store
    if rank is None:
        rank, size = _rank_and_size() or (0, 1)
    assert size is not None
    if not 0 <= rank < size:
        raise Error(ErrorCode.INVALID_ARGUMENT, f"init: rank {rank} of {size}, need 0 <= rank < size")
    return rank, size, _store_of(job or os.environ.get("TANDEM_JOB") or _job_name(), rank, size, timeout)


def _check_seconds(name: str, seconds: float | None) -> None:
    if seconds is not None and not seconds > 0:
        raise Error(ErrorCode.INVALID_ARGUMENT, f"init: {name} is {seconds:g} s, need more than 0")


def init(
    rank: int | None = None,
    size: int | None = None,
    *,
    device: str = "cpu",
    name: str = "world",
    job: str | None = None,
    op_timeout: float | None = None,
    rendezvous_timeout: float | None = None,
    batch_invariant: bool | None = None,
    nan_check: bool | None = None,
    fault: str | None = None,
) -> _core.Group:
    """Makes this process a rank of a group, and the group the default of later calls. A collective call of all ranks.

    Without `rank` and `size` they come from tandem.launch(), or else from the environment: torchrun (RANK, WORLD_SIZE),
    Open MPI, MPICH or Slurm, on one host. Without any of these the group has one rank.

    Args:
        rank, size: this rank's number, and how many there are.
        device: "cpu", "cuda" (the GPU of LOCAL_RANK, or of the rank) or "cuda:<index>". Arrays of the group's ops are
            there.
        name: the same on every rank. Two groups that are open at the same time have different names.
        job: what the ranks of a job have in common, where launch() has not started them. By default it is taken from
            the launcher's environment variables, or else from the parent process.
        op_timeout: longest wait inside an op, in seconds (default 30, or TANDEM_OP_TIMEOUT_MS).
        rendezvous_timeout: longest wait for the other ranks, in seconds (default 60, or TANDEM_RENDEZVOUS_TIMEOUT_MS).
        batch_invariant: whether a row of a result has the same bits however many rows a batch has, by every algorithm
            (default False, or TANDEM_BATCH_INVARIANT). The same on every rank.
        nan_check: whether ops look for NaN in their floating inputs (default False, or TANDEM_NAN_CHECK). This rank's
            own affair; Group.nan_check turns it on and off.
        fault: faults to inject for tests, as in TANDEM_FAULT.

    Raises:
        Error: INVALID_ARGUMENT for a rank outside [0, size) or taken; TIMEOUT with the ranks that did not come;
            MISMATCH if ranks differ in the size or version; UNSUPPORTED for several hosts, or without such a device.
    """
    global _default, _default_thread

    _check_seconds("op_timeout", op_timeout)
    _check_seconds("rendezvous_timeout", rendezvous_timeout)
    timeout = _core.rendezvous_timeout() if rendezvous_timeout is None else rendezvous_timeout
    rank, size, store = _find_ranks(rank, size, job, timeout)
    group = _core.create_group(
        rank=rank,
        size=size,
        store=store,
        device=device,
        device_index=_number("LOCAL_RANK") if "LOCAL_RANK" in os.environ else rank,
        name=name,
        op_timeout=op_timeout,
        rendezvous_timeout=rendezvous_timeout,
        batch_invariant=batch_invariant,
        nan_check=nan_check,
        fault=fault,
    )
    _default, _default_thread = group, threading.get_ident()
    return group


def finalize() -> None:
    """Closes the default group. The end of the process does so too."""
    global _default

    if _default is not None:
        group, _default = _default, None
        group.close()


def poison_default(text: str, culprit: int) -> None:
    """Tells the other ranks of the default group that this one has failed."""
    if _default is not None:
        try:
            _default.poison(text, culprit)
        except Error:
            pass  # closed


def _leave() -> None:
    finalize()
    _stores.clear()


def _after_fork() -> None:
    """In the child: stores and devices are the parent's. Its default group stays, so that the error names it."""
    global _default_thread

    _default_thread = 0
    _stores.clear()
    _devices.__dict__.clear()
    while _listeners:
        _listeners.pop().close()  # else the address would be taken as long as the child lives


atexit.register(_leave)
os.register_at_fork(after_in_child=_after_fork)
