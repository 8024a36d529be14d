"""tandem graph run: programs written by hand, executed with and without fused ops, and what it refuses."""

import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"


def report_of(program, *arguments):
    with tempfile.TemporaryDirectory(prefix="cli_graph_run_") as folder:
        path = os.path.join(folder, "report.json")
        done = cli_tool.run("graph", "run", PROGRAMS / program, "--json", path, *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(pathlib.Path(path).read_text()), done.stdout


class GraphRun(unittest.TestCase):
    def run_text(self, text, *arguments):
        with tempfile.TemporaryDirectory(prefix="cli_graph_run_") as folder:
            path = os.path.join(folder, "program.txt")
            pathlib.Path(path).write_text(text)
            return cli_tool.run("graph", "run", path, *arguments)

    def refuse(self, text, exit_code, words, *arguments):
        done = self.run_text(text, *arguments)
        self.assertEqual(done.returncode, exit_code, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(words, done.stderr)

    def test_what_is_not_fused_runs_beside_products_where_it_is_asked_for(self):
        program = """graph world 2 group "0" source ""
%a: float32[2048, 2048] = placeholder
%w: float32[512, 1024] = placeholder
%p: float32[2048, 2048] = aten.mm.default(%a, %a)
%g: float32[1024, 1024] = _c10d_functional.all_gather_into_tensor.default(%w, 2, "0")
%u: float32[1024, 1024] = _c10d_functional.wait_tensor.default(%g)
%output: (float32[2048, 2048], float32[1024, 1024]) = output([%p, %u])
"""
        done = self.run_text(program, "--low-contention", "--compare")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("compared: all results are within their bounds", done.stdout)
        with tempfile.TemporaryDirectory(prefix="cli_graph_run_") as folder:
            path, fused = (os.path.join(folder, name) for name in ("program.txt", "fused.json"))
            pathlib.Path(path).write_text(program)
            for flags, what in ([], False), (["--low-contention"], True):
                done = cli_tool.run("graph", "fuse", path, "--out", fused, *flags)
                self.assertEqual("runs beside products as g" in done.stdout, what, done.stdout)
                self.assertEqual("symm_mem._low_contention_all_gather" in pathlib.Path(fused).read_text(), what)

    def test_each_program_compares(self):
        ops = {
            "mlp_tp2.txt": ["symm_mem.fused_all_gather_matmul", "symm_mem.fused_matmul_reduce_scatter"],
            "mlp_all_reduce_tp2.txt": ["tandem.fused_matmul_all_reduce"],
            "mlp_f8_tp2.txt": [
                "symm_mem.fused_all_gather_scaled_matmul",
                "symm_mem.fused_scaled_matmul_reduce_scatter",
            ],
            "symbolic_sizes_tp2.txt": ["symm_mem.fused_all_gather_matmul", "symm_mem.fused_matmul_reduce_scatter"],
            "attention_gradient.txt": [],
            "attention_gradient_masked.txt": [],
            "fused_nodes_tp2.txt": [
                "symm_mem.fused_all_gather_matmul",
                "symm_mem.fused_all_gather_scaled_matmul",
                "symm_mem.fused_matmul_reduce_scatter",
                "symm_mem.fused_matmul_reduce_scatter",
                "symm_mem.fused_scaled_matmul_reduce_scatter",
                "tandem.fused_matmul_all_reduce",
                "tandem.fused_matmul_all_reduce",
                "tandem.fused_scaled_matmul_all_reduce",
            ],
        }
        self.assertEqual(sorted(ops), sorted(path.name for path in PROGRAMS.iterdir()))
        for program, names in ops.items():
            with self.subTest(program):
                report, text = report_of(program, "--compare", "--seed", 7)
                self.assertIn("compared: all results are within their bounds", text)
                self.assertEqual(len(report["ranks"]), 2)
                for rank in report["ranks"]:
                    ran = sorted(fused["op"] for fused in rank["fused"])
                    self.assertEqual(ran, [f"{name}.default" for name in names])
                    for fused in rank["fused"]:
                        self.assertEqual(fused["algorithm"], "pipelined")
                        self.assertTrue(fused["trace"])
                        self.assertTrue(fused["differences"])
                    for result in rank["fused"] + rank["outputs"]:
                        for difference in result["differences"]:
                            self.assertLessEqual(difference["max_error"], difference["bound"])

    def test_everything_that_a_fused_node_makes_is_compared(self):
        report, _ = report_of("fused_nodes_tp2.txt", "--compare")
        for rank in report["ranks"]:
            self.assertEqual({fused["node"]: len(fused["differences"]) for fused in rank["fused"]},
                             {"f": 3, "s": 2, "y": 1, "m": 2, "z": 2, "u": 2, "v": 1, "x": 2})

    def test_a_saved_attention_is_that_of_the_programs_own_operands(self):
        for program in ("attention_gradient.txt", "attention_gradient_masked.txt"):
            report, _ = report_of(program)
            for rank in report["ranks"]:
                sums = [output["checksum"] for output in rank["outputs"]]
                self.assertEqual(sums[3], sums[4], program)
                self.assertEqual(sums[5], sums[6], program)

    def test_the_seed_makes_the_inputs(self):
        def sums_of(seed):
            report, _ = report_of("mlp_tp2.txt", "--seed", seed)
            return [[output["checksum"] for output in rank["outputs"]] for rank in report["ranks"]]

        sums = [sums_of(seed) for seed in (1, 1, 2)]
        self.assertEqual(sums[0], sums[1])
        self.assertNotEqual(sums[0], sums[2])
        self.assertNotEqual(sums[0][0], sums[0][1])

    def test_refusals(self):
        head = 'graph world 2 group "0" source ""\n%a: bfloat16[4, 4] = placeholder\n'
        tail = "%output: null = output([%x])\n"
        self.refuse(
            head + "%x: bfloat16[4, 4] = my.op(%a)\n" + tail, 4, "node 'x': my.op cannot be executed"
        )
        attention = (PROGRAMS / "attention_gradient.txt").read_text().replace("8, 8, 0.0, true", "8, 8, 0.1, true")
        self.refuse(attention, 4, "node 'backward': attention with dropout 0.1 cannot be executed, only with 0")
        self.refuse(
            (PROGRAMS / "mlp_tp2.txt").read_text(), 2, "is a program of 2 ranks; leave out --ranks", "--ranks", 3
        )

    def test_another_group_is_said_not_to_run(self):
        done = self.run_text(
            'graph world 2 group "0" source ""\n%a: bfloat16[2, 4] = placeholder\n'
            '%g: bfloat16[6, 4] = _c10d_functional.all_gather_into_tensor.default(%a, 3, "1")\n'
            "%output: null = output([%g])\n",
            "--compare",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("group '1' of 3 ranks is not run: each rank stands for all of them\n", done.stdout)

    def test_constant_outputs_alone_are_nothing_to_compare(self):
        head = 'graph world 1 group "0" source ""\n%a: bfloat16[4] = placeholder\n'
        constant = "%x: bfloat16[4] = aten.mul.Tensor(%a, 0.0)\n"
        self.refuse(
            head + constant + "%output: null = output([%x])\n",
            1,
            "nothing could be compared; first: output 0 'x' on rank 0 is 0 everywhere",
            "--compare",
        )
        text = head + constant + "%y: bfloat16[4] = aten.neg.default(%a)\n%output: null = output([%x, %y])\n"
        done = self.run_text(text, "--compare")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(", not compared on rank 0: is 0 everywhere\n", done.stdout)

    def test_a_value_that_is_not_finite_is_named(self):
        text = (
            'graph world 1 group "0" source ""\n%a: bfloat16[4] = placeholder\n'
            "%i: bfloat16[4] = aten.div.Tensor(%a, 0.0)\n%x: bfloat16[4] = aten.sub.Tensor(%i, %i)\n"
            "%output: null = output([%x])\n"
        )
        with tempfile.TemporaryDirectory(prefix="cli_graph_run_") as folder:
            path = os.path.join(folder, "report.json")
            self.refuse(text, 1, "output 0 'x' on rank 0 is not finite", "--compare", "--json", path)
            report = json.loads(pathlib.Path(path).read_text())
        difference = {"max_error": None, "bound": 0.0, "largest": 0.0}
        self.assertEqual(report["ranks"][0]["outputs"][0]["differences"], [difference])

    def test_a_report_may_be_of_any_size(self):
        lines = [f"%x{i}: bfloat16[4] = aten.mul.Tensor(%a, {i + 1})" for i in range(1000)]
        outputs = ", ".join(f"%x{i}" for i in range(1000))
        text = "\n".join(
            ['graph world 2 group "0" source ""', "%a: bfloat16[4] = placeholder"]
            + lines
            + [f"%output: null = output([{outputs}])\n"]
        )
        done = self.run_text(text, "--compare")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("outputs: 1000\n", done.stdout)
        self.assertIn("  999 'x999' bf16 [4]: ", done.stdout)


if __name__ == "__main__":
    cli_tool.main("__main__")
