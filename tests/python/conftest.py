"""What every test checks: nothing is left behind."""

import os
import pathlib
import tempfile
import time

import pytest


def _left_behind():
    own = {f"shm:{entry.name}" for entry in pathlib.Path("/dev/shm").iterdir() if entry.name.startswith("tandem")}
    own |= {f"tmp:{entry.name}" for entry in pathlib.Path(tempfile.gettempdir()).glob("tandem*")}
    children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    return own | {f"child:{child}" for child in children}


@pytest.fixture(autouse=True)
def nothing_left():
    before = _left_behind()
    yield
    deadline = time.monotonic() + 5
    while (left := _left_behind() - before) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left


@pytest.fixture(autouse=True)
def no_group_left():
    import tandem

    yield
    tandem.finalize()


@pytest.fixture(autouse=True)
def no_measured_times(monkeypatch, tmp_path):
    monkeypatch.setenv("TANDEM_TUNE_FOLDER", str(tmp_path))
