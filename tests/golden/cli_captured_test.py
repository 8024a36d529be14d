"""Real programs, captured from PyTorch (tests/golden/captured): what can be fused is, the rest says why, and the rewritten
programs compute what the captured ones do, on as many ranks as they were captured for.
"""

import json
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool

CAPTURED = pathlib.Path(__file__).resolve().parent / "captured"

# What a person finds in each program, in the order of its collectives. Gathers: v reaches a left operand through views,
# c through a cast by rows, c+ likewise and is needed wide too; A is scaled by the maximum of the whole, R is only a right
# or transposed operand. Scatters: 1 of one product, Σ of a sum, Σ* of a sum of products scaled afterwards; P of an input.
CLASSES = {
    "tiny_attn_fp8_rowwise_tp4_b2_fullac.bwd": ("c+ c+", "Σ*"),
    "tiny_attn_fp8_rowwise_tp4_b2_fullac.fwd": ("c", "1"),
    "tiny_fp8_gather8_tp2_b2_noac.bwd": ("v v", "Σ Σ"),
    "tiny_fp8_gather8_tp2_b2_noac.fwd": ("v v", "1 1"),
    "tiny_fp8_gather8_tp4_b2_fullac.bwd": ("v v v v", "1 Σ Σ"),
    "tiny_fp8_gather8_tp4_b2_fullac.fwd": ("v v", "1 1"),
    "tiny_fp8_rowwise_gwhp_tp4_b2_fullac.bwd": ("c+ c+ c+ c+", "1 Σ* Σ*"),
    "tiny_fp8_rowwise_gwhp_tp4_b2_fullac.fwd": ("c c", "1 1"),
    "tiny_fp8_rowwise_tp2_b1_noac.bwd": ("c+ c+", "Σ* Σ*"),
    "tiny_fp8_rowwise_tp2_b1_noac.fwd": ("c+ c+", "1 1"),
    "tiny_fp8_rowwise_tp2_b2_sac.bwd": ("c+ c+ c+ c+", "Σ* Σ*"),
    "tiny_fp8_rowwise_tp2_b2_sac.fwd": ("c c", "1 1"),
    "tiny_fp8_tensorwise_tp2_b2_noac.bwd": ("A A", "Σ Σ"),
    "tiny_fp8_tensorwise_tp2_b2_noac.fwd": ("A A", "1 1"),
    "tiny_fp8_tensorwise_tp4_b1_fullac.bwd": ("A A A A", "1 Σ Σ"),
    "tiny_fp8_tensorwise_tp4_b1_fullac.fwd": ("A A", "1 1"),
    "tiny_llama_tp2_b1.bwd": ("v v", "Σ Σ"),
    "tiny_llama_tp2_b1.fwd": ("v v", "1 1"),
    "tiny_llama_tp2_b2.bwd": ("v v", "Σ Σ"),
    "tiny_llama_tp2_b2.fwd": ("v v", "1 1"),
    "tiny_llama_tp2_b2_fullac.bwd": ("v v v v", "1 Σ Σ"),
    "tiny_llama_tp2_b2_fullac.fwd": ("v v", "1 1"),
    "tiny_llama_tp4_b1.bwd": ("v v", "Σ Σ"),
    "tiny_llama_tp4_b1.fwd": ("v v", "1 1"),
    "tiny_llama_tp4_b1_sac.bwd": ("v v v v", "Σ Σ"),
    "tiny_llama_tp4_b1_sac.fwd": ("v v", "1 1"),
    "tiny_llama_tp4_b2.bwd": ("v v", "Σ Σ"),
    "tiny_llama_tp4_b2.fwd": ("v v", "1 1"),
    "tiny_qwen_tp4_b2_sacmm.bwd": ("v R v v", "P Σ Σ"),
    "tiny_qwen_tp4_b2_sacmm.fwd": ("v v", "1 1"),
}
REASONS = {"A": {"kScaleOfWhole"}, "R": {"kRightOperand", "kTransposedOperand"}, "P": {"kNoProducer"}}


class Captured(unittest.TestCase):
    def fused(self, name, *flags):
        with tempfile.TemporaryDirectory(prefix="cli_captured_") as folder:
            report = pathlib.Path(folder) / "report.json"
            done = cli_tool.run("graph", "fuse", CAPTURED / f"{name}.txt", "--strict", "--json", report, *flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(report.read_text())

    def test_every_program_is_listed(self):
        self.assertEqual(sorted(path.stem for path in CAPTURED.glob("*.txt")), sorted(CLASSES))

    def test_what_can_be_fused_is(self):
        for name, classes in CLASSES.items():
            rows = self.fused(name)["collectives"]
            for kind, letters in zip(("all_gather", "reduce_scatter"), classes):
                found = [row for row in rows if row["kind"] == kind]
                with self.subTest(name, kind=kind):
                    self.assertEqual(len(found), len(letters.split()))
                    for row, letter in zip(found, letters.split()):
                        self.assertEqual(row["fused_into"] is None, letter in REASONS, row)
                        if letter in REASONS:
                            self.assertIn(row["reason"], REASONS[letter], row)

    def test_shared_maxima_leave_no_scale_of_the_whole(self):
        for name, (gathers, _) in CLASSES.items():
            if "A" in gathers:
                with self.subTest(name):
                    rows = self.fused(name, "--share-maxima")["collectives"]
                    self.assertEqual([row for row in rows if row["kind"] == "all_gather" and not row["fused_into"]], [])

    def test_no_fewer_than_pytorch_fuses(self):
        for name in CLASSES:
            head = (CAPTURED / f"{name}.txt").read_text().split("\n%", 1)[0]
            fused = self.fused(name)["fused"]
            for op, count in re.findall(r'^fuses "(.*)" (\d+)$', head, re.MULTILINE):
                with self.subTest(name, op=op):
                    self.assertGreaterEqual(fused.get(op, 0), int(count))

    def test_rewritten_programs_compute_the_same(self):
        for name in CLASSES:
            with self.subTest(name):
                ranks = re.search(r"_tp(\d)_", name).group(1)
                done = cli_tool.run("graph", "run", CAPTURED / f"{name}.txt", "--ranks", ranks, "--seed", "1", "--compare")
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    cli_tool.main("__main__")
