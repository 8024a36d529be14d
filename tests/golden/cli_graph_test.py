"""tandem graph show: every form of the fuzzer's seeds, and what it says of files that are wrong."""

import json
import os
import pathlib
import sys
import tempfile
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


if __name__ == "__main__":
    cli_tool.main("__main__")
