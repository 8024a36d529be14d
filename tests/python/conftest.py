"""What every test checks: nothing is left behind."""

import gc
import os
import pathlib
import signal
import tempfile
import time

import pytest

import tandem


# A program in the background of a shell ignores ^C, and so would the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _left_behind(folder):
    files = [*pathlib.Path(folder).iterdir(), *pathlib.Path("/dev/shm").glob("tandem*")]
    children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    return {str(file) for file in files} | {f"process {child}" for child in children}


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch):
    """No file, no process; in a temporary directory of the test's own, since others may run."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:  # short: a socket's path has 107 bytes
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setenv("TANDEM_TUNE_FOLDER", "")
        before = _left_behind(folder)
        yield
        tandem.finalize()
        gc.collect()
        deadline = time.monotonic() + 5
        while (left := _left_behind(folder) - before) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not left


@pytest.fixture
def fake_group(tmp_path, monkeypatch):
    """Makes a process group of ranks that are not there."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    yield lambda size: dist.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
    if dist.is_initialized():
        dist.destroy_process_group()
