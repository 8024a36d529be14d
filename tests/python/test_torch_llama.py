"""examples/python/train_tiny_llama.py trains its model in every way that CPUs have."""

import json
import os
import pathlib
import subprocess
import sys

from torch_ranks import needs_torch

pytestmark = needs_torch

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/python/train_tiny_llama.py"
VARIANTS = ["bf16 serial", "bf16 fused", "fp8 row-wise fused"]


def test_training(tmp_path):
    # The text is that of the documentation: after fewer steps, changes of it decide how far the loss has fallen.
    command = [sys.executable, EXAMPLE, "--steps", "20", "--batch", "4", "--length", "32", "--average", "3"]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{tmp_path}/inductor"}
    done = subprocess.run(
        [*command, "--out", tmp_path], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mean loss of the last 3 steps: bf16 serial" in done.stdout
    rows = [json.loads(line) for line in (tmp_path / "losses.json").read_text(encoding="utf-8").splitlines()]
    assert [row["variant"] for row in rows] == VARIANTS
    for row in rows:
        assert len(row["losses"]) == 20 and row["last_loss"] < row["losses"][0] - 1
        assert abs(row["difference"]) < 0.01
    # float8 rounds otherwise than bfloat16: the same losses would come from the same arithmetic.
    assert rows[2]["losses"] != rows[0]["losses"]
