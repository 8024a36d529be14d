"""What is correct but not possible here: exit 4 and one line with the reason."""

import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool

RUN = ["--a", "a.npy", "--b", "b.npy", "--out", "out.npy", "--ranks", "2"]
SIZES = ["--m", "8", "--n", "8", "--k", "8", "--ranks", "2"]

CASES = [
    (["run", "async_input_mm", *RUN], ["async_input_mm", "not built yet"]),
    (["check", "matmul_4bit"], ["matmul_4bit", "only run and bench know"]),
    (["tune", "low_contention_all_gather", *SIZES], ["low_contention_all_gather", "multiplies nothing"]),
    (["run", "all_gather_matmul", *RUN, "--backend", "cuda"], ["cuda", "--backend cpu"]),
    (["run", "matmul_reduce_scatter", *RUN, "--dtype", "f8e4m3", "--scales", "block"],
     ["--scales block", "tensor or row"]),
    (["bench", "matmul_reduce_scatter", *SIZES, "--dtype", "f8e5m2", "--scales", "block"],
     ["--scales block", "cuts k"]),
    (["check", "matmul_reduce_scatter", "--dtype", "f8e4m3", "--scales", "block"],
     ["no case", "tensors and of rows only"]),
    (["run", "all_gather_matmul", *RUN, "--dtype", "f8e4m3", "--scales", "row", "--algorithm", "native"],
     ["native", "cpu", "pipelined or serial"]),
    (["run", "all_gather_matmul", *RUN, "--algorithm", "native", "--gather-dim", "1"], ["native", "cpu", "columns"]),
    (["check", "matmul_reduce_scatter", "--algorithm", "native", "--ranks", "1", "--dtype", "f32"],
     ["none of the 40 cases", "native"]),
    (["check", "--problem", "matmul_reduce_scatter,a=3x5,n=9,algorithm=native,ranks=1"], ["native", "cpu"]),
    (["bench", "--problem", "matmul_reduce_scatter,a=3x5,n=9,dim=1,algorithm=native", "--ranks", "1"],
     ["fused_matmul_reduce_scatter", "native", "cpu", "no peers", "pipelined or serial"]),
    (["bench", "--problem", "all_gather_matmul,a=3x5,n=9,dim=1,algorithm=native", "--ranks", "2"],
     ["native", "cpu", "columns"]),
    (["bench", "mm", *SIZES, "--graph"], ["--graph", "CPU"]),
    (["bench", "mm", *SIZES, "--load-ms", "50"], ["--load-ms", "GPUs"]),
    (["bench", "mm", *SIZES, "--config", "128x256"], ["128x256", "configs"]),
    (["program", "lower", "--form", "scatter", "--op", "linear"], ["scatter", "matmul only"]),
    (["program", "lower", "--dtype", "f8e4m3"], ["f8e4m3", "--dtype"]),
]


class NotSupported(unittest.TestCase):
    def test_every_case_says_why(self):
        with tempfile.TemporaryDirectory(prefix="cli_not_supported_") as folder:
            cli_tool.write_npy(os.path.join(folder, "a.npy"), [4, 6], [0.5] * 24)
            cli_tool.write_npy(os.path.join(folder, "b.npy"), [6, 5], [0.5] * 30)
            before = sorted(os.listdir(folder))
            for arguments, words in CASES:
                with self.subTest(" ".join(arguments)):
                    done = cli_tool.run(*arguments, cwd=folder)
                    shown = f"stdout: {done.stdout}\nstderr: {done.stderr}"
                    self.assertEqual(done.returncode, 4, shown)
                    self.assertEqual(len(done.stderr.splitlines()), 1, shown)
                    for word in words:
                        self.assertIn(word, done.stderr, shown)
                    self.assertEqual(sorted(os.listdir(folder)), before, shown)


if __name__ == "__main__":
    cli_tool.main("__main__")
