"""The models of docs/guide/graph.md do what it says, with the commands that stand there. `make test-guide` runs this."""

import collections
import re
import shutil

import pytest
from test_torch_guide import GRAPHS, GUIDE, commands_with, typed
from torch_ranks import needs_torch

pytestmark = needs_torch

PROGRAM = "examples/python/capture_models.py"
ROWS = re.findall(r"^\| `(\w+)` \| [^|]* \| (\d[^|]*) \| (\d[^|]*) \|$", GRAPHS, re.M)
KINDS = {"all_gather": "gathers", "reduce_scatter": "scatters", "all_reduce": "all-reduces"}
CASES = [(*row, "") for row in ROWS] + [(*ROWS[0], " --data-parallel 2")]


def test_there_are_models():
    assert [row[0] for row in ROWS] == ["llama", "gpt2", "vit", "hugging_face"]


def fused_in(table):
    """The collectives that a table of `tandem graph fuse` says are fused, as the guide counts them."""
    kinds = collections.Counter(line.split()[1] for line in table.splitlines() if "fused into" in line)
    return ", ".join(f"{kinds[kind]} {name}" for kind, name in KINDS.items() if kind in kinds)


@pytest.mark.parametrize("model, forward, backward, options", CASES, ids=[case[0] + case[3] for case in CASES])
def test_model(model, forward, backward, options, tmp_path):
    if model == "hugging_face":
        pytest.importorskip("transformers")
        pytest.importorskip("accelerate")
    (tmp_path / PROGRAM).parent.mkdir(parents=True)
    shutil.copy(GUIDE.parents[2] / PROGRAM, tmp_path / PROGRAM)
    capture, *commands = (command.replace("llama", model) for command in commands_with("llama"))
    files = typed(capture.replace(PROGRAM, PROGRAM + options), tmp_path).split()
    assert files == [f"{model}.0_{way}.json" for way in ("forward", "backward")]
    fuse, run, fuse_backward, run_backward = (typed(command, tmp_path) for command in commands)
    assert (fused_in(fuse), fused_in(fuse_backward)) == (forward, backward)
    for report in (run, run_backward):
        assert report.endswith("compared: all results are within their bounds\n")
