"""What bench, check, demo and doctor report: rows that parse, counts that add up, lines that others accept."""

import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool

KEYS = {
    "op", "m", "n", "k", "dtype", "world", "algorithm", "as_graph", "graph", "b_order", "scales", "t_gemm_us", "t_gemm_best_us", "t_own_mm_us", "t_comm_us", "t_serial_us",
    "t_fused_us", "t_unchecked_us", "nan_check", "predicted_us", "predicted_serial_us", "host_us", "tflops", "ect_us", "efficiency", "ceiling", "speedup", "wrong",
}
PROBLEMS = [
    "all_gather_matmul,a=3x7x5,n=9+4,dtype=bf16,dim=1,ranks=3,algorithm=pipelined,bias=1,gathered=1,b=column,seed=7",
    "matmul_reduce_scatter,a=5x6,n=4,dtype=f16,dim=1,ranks=2,algorithm=serial,reduce=avg,seed=3",
    "all_gather_matmul,a=3x200,n=9+4,dtype=f8e4m3,dim=0,ranks=3,algorithm=pipelined,scales=block,out=f32,bias=1,gathered=1,seed=7",
    "matmul_reduce_scatter,a=5x6,n=4,dtype=f8e5m2,dim=1,ranks=2,algorithm=serial,scales=row,reduce=sum,bias=1,seed=3",
]


class Reports(unittest.TestCase):
    def succeed(self, *arguments):
        done = cli_tool.run(*arguments)
        self.assertEqual(done.returncode, 0, f"tandem {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
        return done.stdout

    def test_bench_appends_json_rows(self):
        with tempfile.TemporaryDirectory(prefix="cli_bench_") as folder:
            path = os.path.join(folder, "rows.json")
            small = ["--iterations", 2, "--warmup", 1, "--json", path]
            for op in ("all_gather_matmul", "matmul_reduce_scatter"):
                text = self.succeed("bench", op, "--m", "33,64", "--n", 16, "--k", 24, "--dtype", "f32,bf16",
                                    "--algorithm", "pipelined", "--ranks", 3, *small)
                self.assertRegex(text.splitlines()[-1], r"^# speedup over serial: worst \d+\.\d\d, mean \d+\.\d\d$")
            self.succeed("bench", "mm", "--m", 32, "--n", 16, "--k", 24, "--ranks", 1, *small)
            rows = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
        self.assertEqual(len(rows), 9)
        for row in rows:
            self.assertLessEqual(KEYS, set(row))
            self.assertEqual((row["wrong"], row["graph"]), (0, False))
            self.assertGreater(row["t_gemm_us"], 0)
        fused = rows[0]
        self.assertEqual((fused["op"], fused["m"], fused["n"], fused["k"], fused["dtype"], fused["world"],
                          fused["algorithm"]), ("all_gather_matmul", 33, 16, 24, "f32", 3, "pipelined"))
        self.assertAlmostEqual(fused["speedup"], fused["t_serial_us"] / fused["t_fused_us"], places=9)
        self.assertAlmostEqual(fused["ect_us"], fused["t_fused_us"] - fused["t_gemm_us"], places=6)
        self.assertAlmostEqual(fused["tflops"], 2e-6 * 33 * 16 * 24 / fused["t_fused_us"], places=9)
        self.assertEqual((rows[-1]["op"], rows[-1]["t_fused_us"], rows[-1]["predicted_us"]), ("mm", None, None))
        for row in rows[:-1]:
            self.assertGreater(min(row["predicted_us"], row["predicted_serial_us"]), 0)

    def test_bench_shows_predictions_beside_what_it_measures(self):
        text = self.succeed("bench", "all_gather_matmul", "--m", 64, "--n", 16, "--k", 24, "--ranks", 2, "--algorithm", "pipelined",
                            "--iterations", 2, "--explain")
        time = r"\d+(?:\.\d+)? (?:us|ms|s)"
        self.assertRegex(text, r"(?m)^# +candidate +predicted +tuned +here$")
        self.assertRegex(text, rf"(?m)^# +serial +{time} +- +{time}$")
        self.assertRegex(text, rf"(?m)^# +pipelined +{time} +- +{time}  runs: asked for$")
        self.assertRegex(text, rf"(?m)^# +native +{time} +- +-$")

    def test_bench_times_the_other_algorithms_too(self):
        with tempfile.TemporaryDirectory(prefix="cli_bench_") as folder:
            path = os.path.join(folder, "rows.json")
            for op in ("all_gather_matmul", "matmul_reduce_scatter"):
                self.succeed("bench", op, "--m", 64, "--n", 16, "--k", 24, "--ranks", 2, "--iterations", 2, "--alternatives",
                             "--json", path)
            gather, scatter = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
        for row in (gather, scatter):
            self.assertEqual(set(row["t_algorithms_us"]), {"serial", "pipelined", "native"})
            self.assertEqual(row["t_algorithms_us"][row["algorithm"]], row["t_fused_us"])
            self.assertTrue(all(us > 0 for us in row["t_algorithms_us"].values()))

    def test_ranks_that_share_a_gpu_load_products(self):
        """No product is loaded while a kernel waits for what its rank has yet to enqueue."""
        for arguments in (["bench", "all_gather_matmul", "--m", 512, "--n", 256, "--k", 512, "--dtype", "bf16", "--b-order",
                           "column", "--ranks", 4, "--algorithm", "serial,native", "--iterations", 2],
                          ["demo", "--scale", "1/4", "--seconds", 1, "--ranks", 8]):
            done = cli_tool.run(*arguments, "--loopback", env={"TANDEM_OP_TIMEOUT_MS": "5000"})
            if done.returncode == 4 and "backend cuda" in done.stderr:
                self.skipTest(done.stderr.strip())
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_bench_names_preset_and_scale(self):
        text = self.succeed("bench", "matmul_reduce_scatter", "--preset", "llama3-8b", "--scale", "1/64", "--ranks", 2,
                            "--iterations", 1, "--warmup", 0)
        self.assertIn("# preset llama3-8b at scale 1/64", text)
        rows = [line.split() for line in text.splitlines() if line.startswith("  ")]
        self.assertEqual([row[1:4] for row in rows], [["64", "64", "8"], ["64", "64", "28"]])

    def test_bench_takes_the_order_that_models_have(self):
        """A preset is a model's, whose weights make b column-major; sizes of one's own are row-major; a list has both."""
        def orders(*flags):
            text = self.succeed("bench", "all_gather_matmul", *flags, "--algorithm", "serial", "--ranks", 2, "--iterations", 1,
                                "--warmup", 0)
            return [line.split()[6] for line in text.splitlines() if line.startswith("  ")]
        sizes = ["--m", 8, "--n", 8, "--k", 8]
        preset = ["--preset", "seed", "--scale", "1/512"]
        self.assertEqual(orders(*preset), ["column"])
        self.assertEqual(orders(*sizes), ["row"])
        self.assertEqual(orders(*preset, "--b-order", "row,column"), ["row", "column"])
        self.assertEqual(orders(*sizes, "--b-order", "column,row"), ["column", "row"])

    def test_bench_draws_the_same_random_sizes_every_time(self):
        draw = lambda count: [line.split()[1:4] for line in self.succeed(
            "bench", "all_gather_matmul", "--preset", f"random:{count}", "--scale", "1/64", "--ranks", 2, "--algorithm",
            "serial", "--iterations", 1, "--warmup", 0).splitlines() if line.startswith("  ")]
        three = draw(3)
        self.assertEqual(len({tuple(sizes) for sizes in three}), 3)
        self.assertEqual(draw(2), three[:2])

    def test_a_link_shows_the_overlap(self):
        """With a simulated link the saved time is said; that it reaches the bound is the fused tests' affair."""
        text = self.succeed("bench", "all_gather_matmul", "--m", 64, "--n", 32, "--k", 32, "--ranks", 3, "--algorithm",
                            "pipelined", "--link-delay-us", 3000, "--iterations", 2, "--warmup", 1)
        self.assertRegex(text, r"# link: saved -?[\d.]+ (us|ms) against serial; 0\.5\*\(W-1\)\*d = 3\.00 ms (not )?reached")

    def test_a_link_can_be_a_share_of_the_product(self):
        """The delay follows the product of the same run, and copies wait for it: no less than (W-1) delays."""
        with tempfile.TemporaryDirectory(prefix="cli_link_") as folder:
            path = os.path.join(folder, "rows.json")
            text = self.succeed("bench", "all_gather_matmul", "--m", 256, "--n", 256, "--k", 256, "--dtype", "f32", "--ranks", 3,
                                "--algorithm", "pipelined", "--link", 2.5, "--iterations", 3, "--json", path)
            self.succeed("bench", "all_gather_matmul", "--m", 64, "--n", 32, "--k", 32, "--ranks", 2, "--algorithm", "pipelined",
                         "--link-delay-us", 500, "--iterations", 1, "--json", path)
            share, fixed = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
        self.assertIn("# simulated link: 2.5 of the product's own time", text)
        link = share["link_delay_us"] * 2
        self.assertEqual((share["link"], fixed["link"], fixed["link_delay_us"]), (2.5, None, 500))
        self.assertGreater(link, 0)
        self.assertGreaterEqual(share["t_comm_us"], link)
        self.assertGreaterEqual(share["t_serial_us"], link)
        verdict = re.search(r"# link: takes \S+ \S+ \(([\d.]+) of the product\); fused is ([\d.]+) of the longer one, "
                            r"serial ([\d.]+) of fused", text)
        figures = [link / share["t_gemm_us"], share["t_fused_us"] / max(share["t_gemm_us"], link),
                   share["t_serial_us"] / share["t_fused_us"]]
        for shown, figure in zip(verdict.groups(), figures):
            self.assertAlmostEqual(float(shown), figure, delta=0.006)

    def test_peaks_say_what_was_measured_and_what_was_not(self):
        with tempfile.TemporaryDirectory(prefix="cli_peaks_") as folder:
            path = os.path.join(folder, "rows.json")
            text = self.succeed("bench", "peaks", "--all-cores", "--iterations", 2, "--warmup", 0, "--json", path)
            rows = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
        cores = len(os.sched_getaffinity(0))
        one = [row for row in rows if len(row["on_cores"]) == 1]
        names = {(row["what"], row["form"]) for row in one}
        self.assertLessEqual({("fma_f32", "scalar"), ("dot_bf16", "512"), ("dot_u8s8", "256"), ("tile_bf16", "amx"),
                              ("read", "L2"), ("write", "L3"), ("copy", "DRAM")}, names)
        self.assertEqual(len(rows), len(one) * (2 if cores > 1 else 1))
        for row in rows:
            self.assertEqual((row["op"], row["best"] is None), ("peaks", row["why_not"] is not None))
            if row["best"] is None:
                self.assertIn(row["why_not"], text)
                continue
            self.assertGreaterEqual(row["best"], row["median"])
            self.assertGreater(row["median"], 0)
            shown = re.search(rf"^ +{row['what']} +{row['form']} +{row['bytes'] or '-'} +{len(row['on_cores'])} +([\d.]+) ", text, re.MULTILINE)
            self.assertAlmostEqual(float(shown.group(1)), row["best"], delta=0.06)

    def test_problem_lines_are_accepted_by_all_three(self):
        with tempfile.TemporaryDirectory(prefix="cli_problem_") as folder:
            for problem in PROBLEMS:
                self.assertIn("1 cases run, 0 skipped, of 1; 0 wrong", self.succeed("check", "--problem", problem))
                self.succeed("bench", "--problem", problem, "--iterations", 1, "--warmup", 0)
                outs = []
                for i in range(2 if "+" in problem else 1):
                    outs += ["--out", os.path.join(folder, f"{i}.safetensors")]
                text = self.succeed("run", "--problem", problem, *outs)
                shown = re.search(r"--problem (\S+)$", text, re.MULTILINE).group(1)
                self.assertEqual(shown, problem)

    def test_check_counts_the_product_of_its_lists(self):
        lists = ["--ranks", "1,3", "--dtype", "bf16", "--algorithm", "serial,pipelined"]
        for flags in ([], ["--in-step"]):
            text = self.succeed("check", *lists, *flags)
            counts = [int(n) for n in re.findall(r"= (\d+): ", text)]
            fused = [1 * 5 * 2 * 2 * 2 * 2, 1 * 5 * 2 * 4 * 2 * 2, 1 * 2 * 2 * 4 * 2 * 2]
            low_contention = [1 * 20 * 2] * 2  # they have no algorithms
            self.assertEqual(counts, fused + low_contention)
            self.assertIn(f"total: {sum(counts)} cases run, 0 skipped, of {sum(counts)}; 0 wrong", text)

    def test_check_counts_scaled_problems(self):
        text = self.succeed("check", "--ranks", "1,2", "--dtype", "f16,f8e4m3", "--algorithm", "serial,pipelined")
        counts = [int(n) for n in re.findall(r"= (\d+): ", text)]
        fused = [(5 * 2 * 2 + 3 * 5) * 2 * 2, (5 * 2 * 4 + 2 * 5) * 2 * 2, (2 * 2 * 4 + 2 * 2) * 2 * 2]
        low_contention = [2 * 20 * 2] * 2
        self.assertEqual(counts, fused + low_contention)
        self.assertIn(f"total: {sum(counts)} cases run, 0 skipped, of {sum(counts)}; 0 wrong", text)

    def test_bench_measures_scaled_ops(self):
        with tempfile.TemporaryDirectory(prefix="cli_bench_") as folder:
            path = os.path.join(folder, "rows.json")
            for op, scales in (("all_gather_matmul", "tensor,row,block"), ("matmul_reduce_scatter", "tensor,row"), ("mm", "row")):
                self.succeed("bench", op, "--m", 33, "--n", 16, "--k", 200, "--dtype", "f8e4m3", "--scales", scales,
                             "--ranks", 3, "--iterations", 1, "--warmup", 0, "--json", path)
            rows = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
        self.assertEqual([(row["dtype"], row["scales"], row["wrong"]) for row in rows],
                         [("f8e4m3", scales, 0) for scales in ("tensor", "row", "block", "tensor", "row", "row")])

    def test_check_counts_what_cannot_run(self):
        lists = ["check", "all_gather_matmul", "--ranks", "2", "--dtype", "f32", "--algorithm"]
        # Of the 5 gathered dims 2 are the last one, and with 4 sizes and extras each native refuses those.
        text = self.succeed(*lists, "native,serial")
        self.assertIn("total: 32 cases run, 8 skipped, of 40; 0 wrong", text)
        self.assertIn("skipped: --problem all_gather_matmul,", text)
        lists[1:4] = ["matmul_reduce_scatter", "--ranks", "1"]  # it has no peers
        done = cli_tool.run(*lists, "native")
        self.assertEqual(done.returncode, 4, done.stderr)  # nothing was checked: no success
        self.assertRegex(done.stdout, r"total: 0 cases run, (\d+) skipped, of \1; 0 wrong")

    def test_demo_is_checked_and_explained(self):
        text = self.succeed("demo", "--scale", "1/32", "--seconds", "0.2", "--ranks", "3")
        lines = text.splitlines()
        self.assertRegex(lines[0], r"^backend cpu \(.+\), 3 ranks \(\d+ cores?: .+\)$")
        self.assertIn("Llama 3 8B MLP at scale 1/32 (asked for): 128 tokens, hidden 128, intermediate 448, bf16", text)
        samples = int(re.search(r"checked: (\d+) sampled outputs", text).group(1))
        self.assertGreaterEqual(samples, 4096)
        self.assertEqual(len(re.findall(r"^  whole MLP ", text, re.MULTILINE)), 2)
        self.assertRegex(text, r"simulated link: \d+(\.\d+)? (us|ms|s) before each copy")
        self.assertRegex(text, r"(?m)^  whole MLP +[\d.]+ (us|ms|s) +[\d.]+ (us|ms|s) +\d+\.\d\dx")
        self.assertRegex(text, r"auto( stays serial)?: (predicted|measured) [\d.]+ (us|ms|s); ")
        self.assertIn("weights as models store them, [outputs, inputs]: the b of a product is column-major\n", text)
        self.assertRegex(text, r"\n  hidden: -?\d+ % of the communication; serial shows ")
        self.assertIn("all equal", text)

    def test_demo_multiplies_f8(self):
        """By every kind of scales, against float64 and bit by bit; what each kind scales is said."""
        words = {"tensor": "where it is fixed beforehand, and for each weight\n", "row": "for each output of the weights\n",
                 "block": "down is bf16, because a scatter cuts k and\nthere is none with scales along it\n"}
        with tempfile.TemporaryDirectory(prefix="cli_demo_") as folder:
            path = os.path.join(folder, "rows.json")
            for scales, fast in (("tensor", []), ("row", ["--fast-accum"]), ("block", [])):
                text = self.succeed("demo", "--dtype", "f8e4m3", "--scales", scales, *fast, "--scale", "1/16", "--seconds", "0.2",
                                    "--ranks", 3, "--link-delay-us", 0, "--json", path)
                self.assertIn("intermediate 896, f8e4m3" + (" with fast sums," if fast else ","), text)
                self.assertIn(words[scales], text)
                self.assertRegex(text, r"checked: \d{4,} sampled outputs against float64 \(largest error [1-9]\d? % of its bound\)")
                self.assertIn("all equal", text)
            rows = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
        self.assertEqual([(row["dtype"], row["scales"], row["fast_accum"]) for row in rows],
                         [("f8e4m3", "tensor", False), ("f8e4m3", "row", True), ("f8e4m3", "block", False)])

    def test_demo_appends_json_rows(self):
        with tempfile.TemporaryDirectory(prefix="cli_demo_") as folder:
            path = os.path.join(folder, "rows.json")
            flags = ["--scale", "1/64", "--seconds", "0.1", "--ranks", 2, "--slices", 8, "--link-delay-us", 500]
            text = self.succeed("demo", *flags, "--json", path)
            rows = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
        self.assertIn("each rank has one of 8 slices of them, so 2 of 8 run here", text)
        self.assertEqual([row["link_delay_us"] for row in rows], [0, 500])
        for row in rows:
            self.assertEqual((row["op"], row["tokens"], row["hidden"], row["intermediate"], row["slices"], row["world"]),
                             ("demo", 64, 64, 14336 * 2 // 8 // 64, 8, 2))
            self.assertEqual((row["dtype"], row["scales"], row["fast_accum"]), ("bf16", None, False))
            self.assertEqual([op["overlapped_by"] in ("native", "pipelined") for op in row["ops"]], [True, True])
            self.assertEqual([op["predicted_serial_us"] > 0 for op in row["ops"]], [True, True])
            for step in row["steps"].values():
                self.assertAlmostEqual(step["speedup"], step["t_serial_us"] / step["t_overlapped_us"], places=9)
            whole = row["steps"]["whole MLP"]
            if whole["hidden"] is not None:
                shown = whole["t_serial_us"] - whole["t_products_us"]
                self.assertAlmostEqual(whole["hidden"], 1 - (whole["t_overlapped_us"] - whole["t_products_us"]) / shown, places=9)
            self.assertEqual(row["command"], "tandem demo " + " ".join(map(str, flags)))

    def test_doctor_finds_what_this_machine_allows(self):
        text = self.succeed("doctor")
        for topic in ("memfd        ok", "passing fds  ok", "futex        ok", "pidfd        ok", "two ranks    ok",
                      "dead ranks   ok"):
            self.assertIn(topic, text)
        self.assertIn("TANDEM_OP_TIMEOUT_MS = 30000 (default)", text)
        changed = cli_tool.run("doctor", env={"TANDEM_OP_TIMEOUT_MS": "1234"})
        self.assertIn("TANDEM_OP_TIMEOUT_MS = 1234\n", changed.stdout)

    def test_doctor_says_what_tracing_can_see(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "doctor.json"
            text = self.succeed("doctor", "--json", file)
            report = json.loads(file.read_text())
        self.assertEqual(report["missing"], "")
        lines = [line.strip() for line in text.splitlines()]
        for finding in report["findings"]:
            self.assertIn(f"{finding['topic']:<12} {finding['text']}".strip(), lines)
        facts = {fact["name"]: fact for fact in report["tracing"]}
        self.assertEqual((facts["cpu:0"]["works"], facts["cpu:0"]["clock"]), (True, "CLOCK_MONOTONIC"))
        self.assertGreater(facts["cpu:0"]["uncertainty_us"], 0)
        self.assertTrue(facts["cpu:0 waits"]["works"], facts["cpu:0 waits"])
        self.assertIn("perf events", facts)
        for fact in report["tracing"]:
            shown = f"{fact['name']}: {fact['text']}"
            self.assertTrue(any(line.startswith("tracing") and shown in line for line in lines), shown)
            if fact["works"]:
                self.assertEqual(fact["remedy"], "", fact)

    def test_reports_say_that_rows_are_the_same_in_every_batch(self):
        command = ["bench", "matmul_reduce_scatter", "--m", 64, "--n", 16, "--k", 24, "--ranks", 2, "--algorithm", "serial",
                   "--iterations", 1, "--backend", "cpu", "--explain"]
        words = "batch invariant, products by cpu/"
        self.assertNotIn(words, self.succeed(*command))
        self.assertIn(words, self.succeed(*command, "--batch-invariant"))
        self.assertIn(words, cli_tool.run(*command, env={"TANDEM_BATCH_INVARIANT": "1"}).stdout)

    def test_reports_say_that_inputs_are_checked_for_nan(self):
        command = ["bench", "all_gather_matmul", "--m", 64, "--n", 16, "--k", 24, "--ranks", 2, "--algorithm", "pipelined",
                   "--iterations", 1, "--backend", "cpu", "--explain"]
        words = "bk: check a for NaN"
        self.assertNotIn(words, self.succeed(*command))
        self.assertIn(words, self.succeed(*command, "--nan-check"))
        self.assertIn(words, cli_tool.run(*command, env={"TANDEM_NAN_CHECK": "1"}).stdout)

    def test_version_and_help(self):
        self.assertRegex(self.succeed("--version"), r"^tandem \d+\.\d+\.\d+\n$")
        for command in ([], ["demo"], ["run"], ["bench"], ["check"], ["doctor"]):
            self.assertIn("--help", self.succeed(*command, "--help"))


if __name__ == "__main__":
    cli_tool.main("__main__")
