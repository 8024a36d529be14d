"""examples/python/train_tiny_llama.py trains its model in every way that CPUs have."""

import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys

from torch_ranks import needs_torch

pytestmark = needs_torch

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/python/train_tiny_llama.py"
BF16 = {"all_gather_matmul", "matmul_reduce_scatter"}
F8 = {"all_gather_scaled_matmul", "scaled_matmul_reduce_scatter"}
# The ops of each model's last step. Two layers have four of each: the forward's, and the backward's.
OPS = {
    "bf16 serial": {},
    "bf16 fused": dict.fromkeys(BF16, 8),
    "fp8 row-wise fused": dict.fromkeys(BF16 | F8, 4),
}
STEPS = 20


def trained(folder, *arguments):
    """The rows of the models that the example has trained in a few steps."""
    # The text is that of the documentation: after fewer steps, changes of it decide how far the loss has fallen.
    command = [sys.executable, EXAMPLE, "--steps", str(STEPS), "--batch", "4", "--length", "32", "--average", "3"]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
    done = subprocess.run(
        [*command, *arguments, "--out", folder],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mean loss of the last 3 steps: bf16 serial" in done.stdout
    return [json.loads(line) for line in (folder / "losses.json").read_text(encoding="utf-8").splitlines()]


def check_models(rows, variants):
    """Whether each model has learnt, by the ops that it should have, and as much as the serial one."""
    assert [row["variant"] for row in rows] == variants
    mean = statistics.fmean(rows[0]["losses"])
    for row in rows:
        assert len(row["losses"]) == STEPS and row["last_loss"] < row["losses"][0] - 1
        assert abs(row["difference"]) < 0.01
        assert abs(statistics.fmean(row["losses"]) / mean - 1) < 0.01
        calls = collections.Counter()
        for name, count in row["fused_ops"].items():
            op, algorithm = name.split()
            assert algorithm in ("native", "pipelined", "serial")
            calls[op] += count
        assert calls == OPS[row["variant"]], row["variant"]
    # float8 rounds otherwise than bfloat16: the same losses would come from the same arithmetic.
    assert rows[-1]["variant"] == "fp8 row-wise fused" and rows[-1]["losses"] != rows[0]["losses"]


def test_training(tmp_path):
    check_models(trained(tmp_path), [*OPS])


def test_float8_on_four_ranks(tmp_path):
    rows = trained(tmp_path, "--ranks", "4", "--dtype", "f8e4m3", "--scales", "row")
    check_models(rows, ["bf16 serial", "fp8 row-wise fused"])


def test_other_scales():
    command = [sys.executable, EXAMPLE, "--dtype", "f8e4m3", "--scales", "block"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 2 and "argument --scales: invalid choice: 'block'" in done.stderr
