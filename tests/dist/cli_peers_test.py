"""`bench` beside other libraries: what is found is timed, what is missing or wrong is named, and neither stops the row."""

import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool

RIGHT = WRONG = None  # stand-ins for OpenBLAS
SIZES = ["--m", 48, "--n", 40, "--k", 32, "--iterations", 2, "--warmup", 1]


class Peers(unittest.TestCase):
    def bench(self, *arguments):
        """The text and the rows."""
        with tempfile.TemporaryDirectory(prefix="cli_peers_") as folder:
            path = os.path.join(folder, "rows.json")
            done = cli_tool.run("bench", *arguments, "--json", path)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return done.stdout, [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]

    def test_a_library_is_timed_beside_tandem(self):
        text, rows = self.bench("mm", *SIZES, "--dtype", "f32,bf16,f16", "--b-order", "row,column", "--peers", f"openblas={RIGHT}")
        self.assertIn(f"# openblas: stand-in for any core, {RIGHT}", text)
        self.assertEqual([(row["dtype"], row["b_order"]) for row in rows],
                         [(dtype, order) for dtype in ("f32", "bf16", "f16") for order in ("row", "column")])
        for row in rows:
            peer = row["peers"]["openblas"]
            self.assertEqual((row["op"], row["m"], row["n"], row["k"], len(row["on_cores"])), ("mm", 48, 40, 32, 1))
            self.assertGreater(row["t_us"], 0)
            self.assertAlmostEqual(row["share_of_peak"], row["gflops"] / row["peak_gflops"])
            self.assertEqual(row["times_tandem"], 1)
            self.assertGreater(row["peers"]["tandem_packed"]["t_cpu_us"], 0)
            by_dot = row["dtype"] == "bf16" and row["dot_bf16_gflops"] > row["fma_f32_gflops"]
            self.assertEqual(row["peak"], "dot_bf16" if by_dot else "fma_f32")
            self.assertEqual(row["peak_gflops"], row[row["peak"] + "_gflops"])
            if row["dtype"] == "f32":
                self.assertAlmostEqual(peer["times_tandem"], peer["t_us"] / row["t_us"])
            else:
                self.assertIn("cblas_sgemm", peer["why_not"])

    def test_all_cores_follow_one_core(self):
        _, rows = self.bench("mm", *SIZES, "--dtype", "f32", "--peers", f"openblas={RIGHT}", "--all-cores")
        cores = len(os.sched_getaffinity(0))
        self.assertEqual([len(row["on_cores"]) for row in rows], [1] if cores == 1 else [1, cores])
        for row in rows:
            self.assertGreater(row["peers"]["openblas"]["t_us"], 0)
            self.assertEqual(row["t_cpu_us"] is None, len(row["on_cores"]) > 1)

    def test_a_library_that_is_wrong_has_no_time(self):
        text, (row,) = self.bench("mm", *SIZES, "--dtype", "f32", "--peers", f"openblas={WRONG}")
        self.assertRegex(row["peers"]["openblas"]["why_not"], r"^out\[47, \d+\]: got ")
        self.assertIn("not measured: out[47, ", text)
        self.assertGreater(row["t_us"], 0)

    def test_a_library_that_is_missing_is_named_with_what_was_tried(self):
        text, (row,) = self.bench("mm", *SIZES, "--dtype", "f32", "--peers", "openblas=/no/such.so,onednn=/no/other.so")
        for name, path in (("openblas", "/no/such.so"), ("onednn", "/no/other.so")):
            self.assertIn(path, row["peers"][name]["why_not"])
            self.assertRegex(text, rf"# {name}: not measured: .*{path}")
        text, (row,) = self.bench("mm", *SIZES, "--dtype", "f32", "--peers", f"onednn={RIGHT}")
        self.assertIn("has no dnnl_version", row["peers"]["onednn"]["why_not"])

    def test_products_by_4_bit_weights_name_what_they_lack(self):
        sizes = ["--m", 2, "--n", 32, "--k", 64, "--iterations", 1, "--warmup", 0]
        text, (row,) = self.bench("matmul_4bit", *sizes, "--peers", f"xnnpack={RIGHT},openblas={RIGHT}")
        self.assertIn("has no xnn_create_fully_connected_nc_qdu8_f32_qc2w", row["peers"]["xnnpack"]["why_not"])
        self.assertIn("4-bit", row["peers"]["openblas"]["why_not"])
        self.assertIn("# openblas: not measured: ", text)


if __name__ == "__main__":
    RIGHT, WRONG = map(os.path.abspath, sys.argv[2:])
    del sys.argv[2:]
    cli_tool.main(__name__)
