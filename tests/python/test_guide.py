"""The programs of docs/guide/python.md do what it prints, exactly as they stand there."""

import pathlib
import re
import subprocess
import sys

import pytest

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs/guide/python.md"
README = GUIDE.parents[2] / "README.md"
PROGRAM = re.compile(r"^```python\n(.*?)^```\n.*?^```\n(.*?)^```$", re.M | re.S)
# test_torch_guide.py runs the program for PyTorch.
PROGRAMS = [found for found in PROGRAM.findall(GUIDE.read_text(encoding="utf-8")) if "tandem.torch" not in found[0]]


def test_there_are_programs():
    assert len(PROGRAMS) == 4


@pytest.mark.parametrize("program, output", PROGRAMS, ids=range(len(PROGRAMS)))
def test_program(program, output, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, path], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout, done.returncode) == (output, 0), done.stderr


def test_readme(tmp_path):
    (program,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.M | re.S)
    (want,) = re.findall(r"^print.*# (.*)$", program, re.M)
    path = tmp_path / "program.py"
    path.write_text(program, encoding="utf-8")
    assert subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120).stdout == want + "\n"


def test_reasons():
    """The guide to graphs has a row for each reason why a collective is not fused, and for no other."""
    header = (README.parent / "include/tandem/graph/fuse.hpp").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^enum class Reason .*?\{(.*?)^\};", header, re.M | re.S)
    rows = re.findall(r"^\| `(k\w+)` \|", (GUIDE.parent / "graph.md").read_text(encoding="utf-8"), re.M)
    assert sorted(rows) == sorted(re.findall(r"^  (k\w+),", listed, re.M))


def test_the_command():
    done = subprocess.run(
        [f"{pathlib.Path(sys.executable).parent}/tandem", "--version"], capture_output=True, text=True
    )
    assert done.stdout.startswith("tandem ") and done.returncode == 0


def test_stubs_and_types():
    import tandem

    folder = pathlib.Path(tandem.__file__).parent
    assert (folder / "py.typed").exists() and "class Group" in (folder / "_core.pyi").read_text(encoding="utf-8")
    for name in tandem.__all__:
        value = getattr(tandem, name)
        assert value.__doc__, f"{name} has no docstring"
