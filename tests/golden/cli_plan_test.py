"""tandem plan: predicted times of ops and models, machine files, and what is said of wrong flags. No GPU is needed."""

import json
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool

RESULTS = pathlib.Path(__file__).resolve().parent.parent.parent / "bench" / "results"
H200 = ["plan", "--gpu", "h200", "--ranks", "4"]
OPS = ["all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce"]

WRONG = [
    (["plan"], ["need one of --gpu h100|h200 and --machine FILE"]),
    (["plan", "--gpu", "h200"], ["--shape MxNxK or --preset"]),
    (["plan", "--gpu", "b200", "--ranks", "2", "--shape", "64x64x64"], ["'b200'", "there are h100, h200", "--machine"]),
    (["plan", "--gpu", "h200", "--shape", "64x64x64"], ["--ranks 0", "2 to 1024"]),
    ([*H200, "--shape", "64x64"], ["--shape '64x64'", "MxNxK"]),
    ([*H200, "--shape", "64x64x0"], ["--shape '64x64x0'", "from 1 to"]),
    ([*H200, "--shape", "64x64x64", "--preset", "llama3-8b"], ["one of --shape and --preset"]),
    ([*H200, "--preset", "llama4"], ["'llama4'", "llama3-8b or llama3-70b"]),
    (["plan", "--gpu", "h200", "--ranks", "3", "--preset", "llama3-8b"], ["--ranks 3", "do not divide"]),
    ([*H200, "sort", "--shape", "64x64x64"], ["sort"]),
    ([*H200, "--shape", "64x64x64", "--hosts", "3"], ["--hosts 3", "divides the 4 ranks"]),
    ([*H200, "--shape", "64x64x64", "--hosts", "2"], ["need --link", "400 Gbit/s"]),
    ([*H200, "--shape", "64x64x64", "--dtype", "f64"], ["f64"]),
    ([*H200, "--shape", "64x64x64", "--scales", "row"], ["--dtype bf16", "--scales"]),
    ([*H200, "--shape", "64x64x64", "--dtype", "f8e4m3", "--scales", "block"], ["'block'", "tensor or row"]),
    ([*H200, "--preset", "llama3-8b", "--recompute"], ["--recompute", "--training"]),
    ([*H200, "--preset", "llama3-8b", "--overlap", "reduce"], ["'reduce'", "gather or scatter"]),
    ([*H200, "--preset", "llama3-8b", "--serial-tokens", "1e9"], ["--serial-tokens 1e+09", "predicted to take"]),
    ([*H200, "--fit", "rows.json"], ["--fit", "--output"]),
    ([*H200, "--against", "/nowhere/rows.json"], ["/nowhere/rows.json"]),
]


def times_of(text):
    """us of "812 us" or "1.01 ms"."""
    value, unit = text.split()
    return float(value) * {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}[unit]


class Plan(unittest.TestCase):
    def plan(self, *arguments, code=0):
        done = cli_tool.run(*arguments)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout

    def rows(self, *arguments):
        """The rows that --json keeps."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.json"
            self.plan(*arguments, "--json", path)
            return [json.loads(line) for line in path.read_text().splitlines()]

    def test_every_op_of_a_shape(self):
        rows = self.rows(*H200, "--shape", "4096x7168x8192,512x3584x8192")
        self.assertEqual([row["op"] for row in rows], 2 * OPS)
        for row in rows:
            times = {name: row[f"{name}_us"] for name in ("serial", "pipelined", "native") if row[f"{name}_us"]}
            self.assertEqual(row["us"], min(times.values()))
            self.assertEqual(row["us"], times[row["algorithm"]])
            self.assertAlmostEqual(row["serial_us"], row["product_us"] + row["comm_us"])
            self.assertGreaterEqual(row["hidden"], 0)
            self.assertLessEqual(row["hidden"], 1)

    def test_one_op_is_printed(self):
        text = self.plan(*H200, "all_gather_matmul", "--shape", "4096x7168x8192")
        self.assertIn("4 ranks with an NVIDIA H200 each", text)
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        self.assertEqual(len(lines), 1)
        self.assertRegex(lines[0], r"all_gather_matmul +4096 +7168 +8192 +bf16 +4 ")

    def test_an_algorithm_that_cannot_run_says_why(self):
        text = self.plan(*H200, "all_gather_matmul", "--shape", "4096x7169x8192")
        self.assertIn("native: ", text)
        self.assertIn("multiples of 8", text)

    def test_a_slower_link_costs_more(self):
        (fast,) = self.rows(*H200, "all_gather_matmul", "--shape", "4096x7168x8192")
        (slow,) = self.rows(*H200, "all_gather_matmul", "--shape", "4096x7168x8192", "--link", "50")
        self.assertGreater(slow["comm_us"], 3 * fast["comm_us"])
        self.assertEqual(slow["product_us"], fast["product_us"])

    def test_hosts_are_a_model_without_measurement(self):
        flags = ["--shape", "4096x7168x8192", "--hosts", "2", "--link", "50"]
        self.assertIn("a model without measurement", self.plan(*H200, *flags))
        # By hand: two ranks a host; a shard of 1024 rows crosses once.
        (row,) = self.rows(*H200, "all_gather_matmul", *flags)
        (inside,) = self.rows("plan", "--gpu", "h200", "--ranks", "2", "all_gather_matmul", "--shape", "4096x7168x8192")
        outer = 10 + 1024 * 8192 * 2 / 50e3
        self.assertAlmostEqual(row["comm_us"], inside["comm_us"] + outer)
        self.assertAlmostEqual(row["serial_us"], inside["serial_us"] + outer)
        shown = max(0, outer - inside["product_us"] / 2)
        self.assertAlmostEqual(row["pipelined_us"], inside["pipelined_us"] + shown)
        (alone,) = self.rows("plan", "--gpu", "h200", "--ranks", "2", "all_gather_matmul", *flags)
        self.assertEqual(alone["native_us"], alone["pipelined_us"])
        self.assertEqual(alone["algorithm"], "native")
        (scatter,) = self.rows(*H200, "matmul_reduce_scatter", *flags)
        self.assertIsNone(scatter["native_us"])
        self.assertEqual(scatter["algorithm"], "pipelined")
        self.assertAlmostEqual(alone["comm_us"], 10 + 2048 * 8192 * 2 / 50e3)

    def test_auto_across_hosts_is_what_the_library_takes(self):
        # It looks at no times there: native where the op has it, else pipelined, also where serial would be faster.
        for op, taken in (("all_gather_matmul", "native"), ("matmul_reduce_scatter", "pipelined")):
            for shape in ("64x1024x1024", "8192x8192x8192"):
                for ranks in ("2", "4"):
                    flags = ["plan", "--gpu", "h200", "--ranks", ranks, "--hosts", "2", "--link", "50"]
                    (row,) = self.rows(*flags, op, "--shape", shape)
                    self.assertEqual(row["algorithm"], taken, (op, shape, ranks))

    def test_a_model(self):
        text = self.plan(*H200, "--preset", "llama3-70b", "--layers", "80")
        self.assertIn("80 layers, 4 fused ops each", text)
        self.assertRegex(text, r"tokens/s: \+[\d.]+ % at most")
        training = self.plan(*H200, "--preset", "llama3-70b", "--training", "--recompute", "--tokens", "8192")
        self.assertIn("80 layers, 12 fused ops each, 8192 tokens", training)

    def test_what_else_a_model_does_lessens_what_it_gains(self):
        flags = [*H200, "--preset", "llama3-8b", "--tokens", "8192"]
        most = float(re.search(r"tokens/s: \+([\d.]+) %", self.plan(*flags)).group(1))
        text = self.plan(*flags, "--serial-tokens", "1000")
        gained = float(re.search(r"overlapped, \+([\d.]+) %", text).group(1))
        self.assertGreater(gained, 0)
        self.assertLess(gained, most)
        nothing = self.plan(*flags, "--algorithm", "serial", "--serial-tokens", "1000")
        self.assertIn("+0.0 %", nothing)

    def test_rates_have_sources(self):
        for gpu in ("h100", "h200"):
            lines = [line for line in self.plan("plan", "--gpu", gpu, "--rates").splitlines() if line[0] != "#"]
            self.assertGreater(len(lines), 40)
            for line in lines:
                self.assertRegex(line, r"^  \w+ +[-+.e\d]+  \S.*$")

    def test_predictions_against_rows(self):
        path = RESULTS / "h200_x2_random_preset_fitted_row.json"
        text = self.plan("plan", "--gpu", "h200", "--against", path)
        self.assertIn("80 rows of an NVIDIA H200", text)
        self.assertRegex(text, r"h200_x2_random_preset_fitted_row.json +(fitted|held out) +\d+/80 ")
        wrong = cli_tool.run("plan", "--gpu", "h100", "--against", path)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("none of an NVIDIA H100", wrong.stderr)

    def test_a_fitted_machine_is_nearer_to_its_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            rows = (RESULTS / "h200_x2_auto_shapes.json").read_text().splitlines()[:6]
            doubled = [json.loads(row) for row in rows]
            for row in doubled:
                for key in row:
                    if key.startswith("t_") and isinstance(row[key], float):
                        row[key] *= 2
            few = folder / "few.json"
            few.write_text("".join(json.dumps(row) + "\n" for row in doubled))
            self.plan("plan", "--fit", few, "--output", folder / "slow.json")
            machine = json.loads((folder / "slow.json").read_text())
            self.assertEqual(machine["gpu"], "NVIDIA H200")
            sources = {rate["source"] for rate in machine["rates"].values()}
            self.assertIn("fitted to few.json", sources)
            self.assertIn("the table of the library, src/cost/machine.hpp", sources)
            text = self.plan("plan", "--machine", folder / "slow.json", "--against", few)
            self.assertRegex(text, r"few.json +fitted ")
            # The same sizes take about twice as long.
            shape = ["--ranks", "2", "all_gather_matmul", "--shape", "4096x3584x8192"]
            (slow,) = self.rows("plan", "--machine", folder / "slow.json", *shape)
            (usual,) = self.rows("plan", "--gpu", "h200", *shape)
            self.assertGreater(slow["product_us"], 1.5 * usual["product_us"])

    def test_a_wrong_machine_file_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "machine.json"
            for text, words in [
                ("{", ["no JSON"]),
                ('{"format": 1, "gpu": "x", "rates": {}}', ["multiprocessors", "missing"]),
                ('{"format": 1, "gpu": "x", "rates": {"tile_ps": 1}}', ["unknown key 'tile_ps'"]),
            ]:
                path.write_text(text)
                done = cli_tool.run("plan", "--machine", path, "--ranks", 2, "--shape", "64x64x64")
                self.assertEqual(done.returncode, 2, done.stderr)
                for word in [str(path), *words]:
                    self.assertIn(word, done.stderr)

    def test_a_wrong_row_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.json"
            path.write_text("{}\n\n[1]\n")
            done = cli_tool.run("plan", "--gpu", "h200", "--against", path)
            self.assertEqual(done.returncode, 2)
            self.assertIn("rows.json: line 3: found", done.stderr)

    def test_wrong_flags(self):
        for arguments, words in WRONG:
            with self.subTest(arguments):
                done = cli_tool.run(*arguments)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)


if __name__ == "__main__":
    cli_tool.main(__name__)
