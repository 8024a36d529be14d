"""The programs for PyTorch in the guides do what these print, exactly as they stand there."""

import os
import pathlib
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
GRAPHS = (GUIDE.parent / "graph.md").read_text(encoding="utf-8")
CAPTURE = PROGRAM.findall(GRAPHS)
COMMANDS = re.findall(r"^`(?:(\w+)=(\w+) )?torchrun (.*) program.py` prints", TEXT, re.M)


def test_there_are_programs():
    assert len(PROGRAMS) == len(COMMANDS) == 3


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


def typed(command, folder):
    """What a command of the guide prints that is typed in a folder, with this Python first in the path."""
    with tempfile.TemporaryDirectory() as temporary:  # Inductor leaves code there
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            command,
            shell=True,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
            cwd=folder,
            env=os.environ | {"TMPDIR": temporary, "PATH": path},
        )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def commands_with(word):
    """The commands of the guide to graphs that have this word, in order."""
    return [command for command in re.findall(r"^\$ (.*)$", GRAPHS, re.M) if word in command]


def test_graphs(tmp_path):
    """The program that captures, the files that it says, and what is done with them."""
    import tandem

    ((program, output),) = CAPTURE
    (tmp_path / "mlp.py").write_text(program, encoding="utf-8")
    assert typed("python mlp.py", tmp_path) == output
    for name in output.split():
        assert tandem.graph.fuse(tandem.graph.load(tmp_path / name), strict=True).fused
    fuse, run = commands_with("mlp")
    assert typed(fuse, tmp_path).count("fused into") == 2
    assert "fused_all_gather_matmul" in typed("tandem graph show mlp.fused.json", tmp_path)
    assert typed(run, tmp_path).endswith("compared: all results are within their bounds\n")


def test_docstrings():
    import tandem.torch

    for name in tandem.torch.__all__:
        assert getattr(tandem.torch, name).__doc__, f"{name} has no docstring"
