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
    command = [sys.executable, EXAMPLE, "--steps", "10", "--batch", "4", "--length", "32", "--average", "3"]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{tmp_path}/inductor"}
    done = subprocess.run(
        [*command, "--out", tmp_path], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mean loss of the last 3 steps: bf16 serial" in done.stdout
    rows = [json.loads(line) for line in (tmp_path / "losses.json").read_text(encoding="utf-8").splitlines()]
    assert [row["variant"] for row in rows] == VARIANTS
    for row in rows:
        # The text is that of the documentation, so a loss of 6 falls by another amount with each change of it.
        assert len(row["losses"]) == 10 and row["last_loss"] < row["losses"][0] - 0.3
        assert abs(row["difference"]) < 0.01
    # float8 rounds otherwise than bfloat16: the same losses would come from the same arithmetic.
    assert rows[2]["losses"] != rows[0]["losses"]
