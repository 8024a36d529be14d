"""The program for PyTorch in docs/guide/python.md does what it prints, exactly as it stands there."""

import re
import subprocess
import sys

from test_guide import GUIDE, PROGRAM
from torch_ranks import needs_torch

pytestmark = needs_torch


def test_program(tmp_path):
    text = GUIDE.read_text(encoding="utf-8")
    ((program, output),) = [found for found in PROGRAM.findall(text) if "tandem.torch" in found[0]]
    (command,) = re.findall(r"^`torchrun (.*) program.py` prints", text, re.M)
    path = tmp_path / "program.py"
    path.write_text(program, encoding="utf-8")
    launcher = [sys.executable, "-m", "torch.distributed.run", *command.split(), "--log-dir", tmp_path, path]
    done = subprocess.run(launcher, capture_output=True, text=True, check=False, timeout=240)
    assert (done.stdout, done.returncode) == (output, 0), done.stderr


def test_docstrings():
    import tandem.torch

    for name in tandem.torch.__all__:
        assert getattr(tandem.torch, name).__doc__, f"{name} has no docstring"
