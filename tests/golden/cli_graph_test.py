"""tandem graph show and fuse: every form of the fuzzer's seeds, reports and exit codes, and what is said of wrong files."""

import json
import os
import pathlib
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool

SEEDS = pathlib.Path(__file__).resolve().parent.parent / "fuzz" / "corpus" / "graph_forms"


def shown(*arguments):
    done = cli_tool.run("graph", "show", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


class GraphShow(unittest.TestCase):
    def test_text_and_json_hold_the_same(self):
        for text in sorted(SEEDS.glob("*.txt")):
            with self.subTest(text.name):
                as_json = text.with_suffix(".json")
                self.assertEqual(shown(text), text.read_text())
                self.assertEqual(shown(as_json), text.read_text())
                self.assertEqual(shown(text, "--form", "json"), as_json.read_text())
                self.assertEqual(json.loads(as_json.read_text())["schema"], 1)

    def test_a_picture_is_a_digraph(self):
        self.assertTrue(shown(SEEDS / "views.txt", "--form", "dot").startswith("digraph program {\n"))

    def test_after_a_pass(self):
        merged = shown(SEEDS / "gather_last_dim.txt", "--after", "merge-collectives")
        self.assertIn('%all_gather: bfloat16[4, 12] = tandem.all_gather.default(%a, 1, 2, "0")', merged)
        self.assertNotIn("aten.split", merged)
        self.assertIn("aten.split", shown(SEEDS / "gather_last_dim.txt"))

    def test_wrong_files_are_exit_2_and_name_the_place(self):
        with tempfile.TemporaryDirectory(prefix="cli_graph_") as folder:
            cases = {
                "no.json": (None, "no.json: "),
                "bad.json": ('{"schema": 7}', "schema is 7, need 1"),
                "bad.txt": ("graph world 0", "line 1: world is 0"),
                "late.txt": (
                    'graph world 1 group "0" source ""\n%a: int8[2, 3] = placeholder\n'
                    "%x: int8[2, 2] = aten.mm.default(%a, %a)\n%output: null = output([%x])\n",
                    "node 1 'x' (aten.mm.default): multiplies [2, 3] by [2, 3]",
                ),
            }
            for name, (text, words) in cases.items():
                with self.subTest(name):
                    path = os.path.join(folder, name)
                    if text is not None:
                        pathlib.Path(path).write_text(text)
                    done = cli_tool.run("graph", "show", path)
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                    self.assertIn(words, done.stderr)
                    self.assertEqual(done.stdout, "")


class GraphFuse(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="cli_graph_")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def test_the_table_the_report_and_the_program(self):
        report, program = self.folder / "report.json", self.folder / "program.json"
        done = cli_tool.run("graph", "fuse", SEEDS / "scatter_bias.txt", "--strict", "--json", report, "--out", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 collective in symm_mem.fused_matmul_reduce_scatter.default", done.stdout)
        told = json.loads(report.read_text())
        self.assertEqual(told["schema"], 1)
        self.assertEqual(told["fused"], {"symm_mem.fused_matmul_reduce_scatter.default": 1})
        (row,) = told["collectives"]
        self.assertEqual(
            {key: row[key] for key in ("node", "kind", "fused_into", "reason", "bytes")},
            {"node": "r", "kind": "reduce_scatter", "fused_into": "fused_matmul_reduce_scatter", "reason": None,
             "bytes": 2 * 6 * 2},
        )
        self.assertIn(row["fused_into"], [node["name"] for node in json.loads(program.read_text())["nodes"]])
        self.assertIn("palegreen", shown(program, "--form", "dot"))

    def test_nothing_fused_is_said_and_strict_is_exit_3(self):
        path = self.folder / "relu.txt"
        path.write_text(
            'graph world 2 group "0" source ""\n%a: float32[2, 4] = placeholder\n%b: float32[4, 4] = placeholder\n'
            '%g: float32[4, 4] = tandem.all_gather.default(%a, 0, 2, "0")\n%u: float32[4, 4] = aten.relu.default(%g)\n'
            "%p: float32[4, 4] = aten.mm.default(%u, %b)\n%output: (float32[4, 4]) = output([%p])\n"
        )
        done = cli_tool.run("graph", "fuse", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("NOTHING WAS FUSED", done.stdout)
        self.assertIn("kOpBetween: an op stands between it and the product: u (aten.relu.default)", done.stdout)
        strict = cli_tool.run("graph", "fuse", path, "--strict")
        self.assertEqual(strict.returncode, 3, strict.stderr)
        self.assertEqual(strict.stdout, done.stdout)
        self.assertEqual(strict.stderr, "tandem: graph: NOTHING WAS FUSED: g kOpBetween u (aten.relu.default)\n")

    def test_a_signal_ends_it_at_once(self):
        path = self.folder / "long.txt"
        nodes = [f"%x{i}: float32[4] = aten.relu.default(%{'a' if i == 0 else f'x{i - 1}'})" for i in range(150_000)]
        path.write_text(
            'graph world 2 group "0" source ""\n%a: float32[4] = placeholder\n' + "\n".join(nodes)
            + f"\n%output: (float32[4]) = output([%x{len(nodes) - 1}])\n"
        )
        started = cli_tool.start("graph", "fuse", path)
        time.sleep(0.3)
        self.assertIsNone(started.poll(), "it ended before it could be interrupted")
        started.terminate()
        out, error = started.communicate(timeout=60)
        self.assertEqual((started.returncode, out), (143, ""), error)
        self.assertIn("interrupted", error)

    def test_cost_leaves_what_does_not_pay(self):
        done = cli_tool.run("graph", "fuse", SEEDS / "scatter_bias.txt", "--cost")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("kNotProfitable", done.stdout)

    def test_a_file_that_cannot_be_written_is_exit_2(self):
        done = cli_tool.run("graph", "fuse", SEEDS / "scatter_bias.txt", "--out", self.folder / "no" / "where.json")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("where.json", done.stderr)


if __name__ == "__main__":
    cli_tool.main("__main__")
