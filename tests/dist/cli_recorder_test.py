"""tandem doctor --recorder: what the ranks of a failed group had done, told from the file that it leaves."""

import json
import os
import pathlib
import stat
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool


class Recorder(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="cli_recorder_")
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)
        cli_tool.write_npy(self.folder / "a.npy", [16, 8], [0.5] * 128)
        cli_tool.write_npy(self.folder / "b.npy", [8, 8], [0.5] * 64)

    def run_op(self, **env):
        return cli_tool.run("run", "all_gather_matmul", "--a", self.folder / "a.npy", "--b", self.folder / "b.npy", "--out",
                            self.folder / "o.npy", "--ranks", "3", "--algorithm", "pipelined",
                            env={"TANDEM_RECORDER_FOLDER": str(self.folder), **env})

    def records(self):
        return sorted(self.folder.glob("tandem-*.json"))

    def test_a_killed_rank_is_told_with_its_last_call(self):
        done = self.run_op(TANDEM_FAULT="get:1:1:die")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(len(self.records()), 1, done.stderr)
        file = self.records()[0]
        self.assertIn(f"tandem doctor --recorder {file}", done.stderr)
        self.assertEqual(stat.S_IMODE(os.stat(file).st_mode), 0o600)
        record = json.loads(file.read_text())
        self.assertEqual((record["culprit"], len(record["ranks"])), (1, 3))
        killed = record["ranks"][1]["calls"][-1]
        self.assertIn("all_gather_matmul", killed["op"])
        self.assertGreater(killed["entered_ns"], 0)
        self.assertEqual(killed["ended_ns"], 0)
        told = cli_tool.run("doctor", "--recorder", file)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertIn(f"rank 1 is at fault: it was in call #{killed['sequence']} 'all_gather_matmul", told.stdout)

    def test_a_rank_that_does_not_come_is_named(self):
        self.run_op(TANDEM_FAULT="agree:2:1:stop", TANDEM_OP_TIMEOUT_MS="500", TANDEM_RENDEZVOUS_TIMEOUT_MS="2000")
        self.assertEqual(len(self.records()), 1)
        told = cli_tool.run("doctor", "--recorder", self.records()[0])
        self.assertIn("(rank 2)", told.stdout)

    def test_nothing_is_left_without_a_fault_or_a_folder(self):
        self.assertEqual(self.run_op().returncode, 0)
        self.run_op(TANDEM_FAULT="get:1:1:die", TANDEM_RECORDER_FOLDER="")
        self.assertEqual(self.records(), [])

    def test_a_folder_that_is_not_there_is_said(self):
        done = self.run_op(TANDEM_FAULT="get:1:1:die", TANDEM_RECORDER_FOLDER=str(self.folder / "none"))
        self.assertIn("cannot be written to", done.stderr)

    def test_other_files_are_refused(self):
        for text in ("", "{}", '{"schema": 2}', '{"schema": 1, "group": "g", "error": null, "culprit": null, "ranks": [1]}',
                     '{"schema": ' + "[" * 100_000 + "]" * 100_000 + "}",
                     '{"schema": 1, "group": "g", "error": null, "culprit": 1e300, "ranks": []}'):
            (self.folder / "x.json").write_text(text)
            done = cli_tool.run("doctor", "--recorder", self.folder / "x.json")
            self.assertEqual(done.returncode, 2, text)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn("no flight record", done.stderr)


if __name__ == "__main__":
    cli_tool.main(sys.modules[__name__])
