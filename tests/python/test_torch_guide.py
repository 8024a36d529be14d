"""The programs for PyTorch in the guides do what these print, exactly as they stand there."""

import os
import re
import subprocess
import sys
import tempfile

import pytest
from test_guide import GUIDE, PROGRAM
from torch_ranks import needs_torch

pytestmark = needs_torch

TEXT = GUIDE.read_text(encoding="utf-8")
PROGRAMS = [found for found in PROGRAM.findall(TEXT) if "tandem.torch" in found[0]]
CAPTURE = PROGRAM.findall((GUIDE.parent / "graph.md").read_text(encoding="utf-8"))
COMMANDS = re.findall(r"^`(?:(\w+)=(\w+) )?torchrun (.*) program.py` prints", TEXT, re.M)


def test_there_are_programs():
    assert len(PROGRAMS) == len(COMMANDS) == 2


@pytest.mark.parametrize("program, command", list(zip(PROGRAMS, COMMANDS, strict=True)), ids=range(len(PROGRAMS)))
def test_program(program, command, tmp_path):
    text, output = program
    variable, value, options = command
    path = tmp_path / "program.py"
    path.write_text(text, encoding="utf-8")
    launcher = [sys.executable, "-m", "torch.distributed.run", *options.split(), "--log-dir", tmp_path, path]
    with tempfile.TemporaryDirectory() as folder:  # Inductor leaves code there
        environment = os.environ | {"TMPDIR": folder} | ({variable: value} if variable else {})
        done = subprocess.run(launcher, capture_output=True, text=True, check=False, timeout=240, env=environment)
    assert (done.stdout, done.returncode) == (output, 0), done.stderr


def test_capture(tmp_path):
    """The program that captures, and the files that it says."""
    import tandem

    ((text, output),) = CAPTURE
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "program.py"],
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
            cwd=tmp_path,
            env=os.environ | {"TMPDIR": folder},
        )
    assert (done.stdout, done.returncode) == (output, 0), done.stderr
    for name in output.split():
        assert tandem.graph.fuse(tandem.graph.load(tmp_path / name), strict=True).fused


def test_docstrings():
    import tandem.torch

    for name in tandem.torch.__all__:
        assert getattr(tandem.torch, name).__doc__, f"{name} has no docstring"
