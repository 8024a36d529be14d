"""A planted wrong chunk is found by every command that checks; a failing rank's error is the command's."""

import itertools
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool

DEMO = ["demo", "--scale", "1/32", "--seconds", "0.2", "--ranks", "4"]


class Planted(unittest.TestCase):
    def fails(self, arguments, fault, words, env=None):
        done = cli_tool.run(*arguments, env={"TANDEM_FAULT": fault, **(env or {})})
        shown = f"{fault}\nstdout: {done.stdout}\nstderr: {done.stderr}"
        self.assertEqual(done.returncode, 1, shown)
        self.assertEqual(len(done.stderr.splitlines()), 1, shown)
        for word in words:
            self.assertIn(word, done.stderr, shown)
        return done

    def test_demo_finds_a_wrong_chunk(self):
        for fault in ("get:*:3:corrupt", "get:0:1:corrupt", "get:3:20:corrupt"):
            for scales in (None, "tensor", "row", "block"):
                with self.subTest(fault=fault, scales=scales):
                    f8 = ["--dtype", "f8e4m3", "--scales", scales] if scales else []
                    self.fails(DEMO + f8, fault, ["wrong result", "rank"])

    def test_check_finds_a_wrong_chunk_and_names_the_problem(self):
        done = self.fails(["check", "all_gather_matmul", "--ranks", "3", "--dtype", "f32"], "get:1:5:corrupt",
                          ["wrong", "--problem all_gather_matmul,"])
        self.assertIn("wrong: --problem ", done.stdout)

    def test_bench_voids_a_wrong_row(self):
        row = ["bench", "all_gather_matmul", "--m", "64", "--n", "32", "--k", "32", "--ranks", "3", "--algorithm",
               "pipelined", "--iterations", "3", "--warmup", "1"]
        done = self.fails(row, "get:2:7:corrupt", ["wrong result", "--problem all_gather_matmul,"])
        self.assertNotIn("speedup over serial", done.stdout)

    def test_a_killed_rank_is_named(self):
        check_in_step = ["check", "--ranks", "4", "--dtype", "f32", "--in-step"]
        for command, fault in itertools.product((DEMO, check_in_step), ("get:2:4:die", "barrier:1:3:die")):
            with self.subTest(command=command[0], fault=fault):
                rank = fault.split(":")[1]
                self.fails(command, fault, [f"rank {rank}"])

    def test_a_stopped_rank_is_named(self):
        self.fails(DEMO, "get:2:4:stop", ["rank 2", "stopped"], {"TANDEM_OP_TIMEOUT_MS": "500",
                                                               "TANDEM_RENDEZVOUS_TIMEOUT_MS": "2000"})


if __name__ == "__main__":
    cli_tool.main("__main__")
