"""What does not fit into memory is refused before anything starts: by every command, in a control group too."""

import contextlib
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool

GROUPS = pathlib.Path("/sys/fs/cgroup/memory")
GROUP_BYTES = 256 << 20
GRAPH = """graph world 2 group "0" source ""
%a: float32[{size}, 65536] = placeholder
%output: float32[{size}, 65536] = output(%a)
"""
ZEROS = """graph world 2 group "0" source ""
%a: float32[2] = placeholder
%z: float32[{size}, 65536] = aten.zeros.default([{size}, 65536])
%output: float32[{size}, 65536] = output(%z)
"""
# Files without data on the disk.
SPARSE = {"a.npy": [1 << 31, 64], "b.npy": [64, 64], "tall.npy": [1 << 33, 1], "wide.npy": [1, 1 << 33],
          "summands.npy": [2, 1 << 31, 64], "empty_a.npy": [1 << 62, 0], "empty_b.npy": [0, 1 << 62],
          "graph.txt": GRAPH.format(size=1 << 30), "zeros.txt": ZEROS.format(size=1 << 30)}
A = "a=2147483648x65536,n=65536"
SIZES = ["--m", str(1 << 24), "--n", "1", "--k", str(1 << 23)]
RANKS = ["--ranks", "2"]

# More than a machine has: half a petabyte and more, but of files, where it is a terabyte.
CASES = [
    ["run", "--problem", f"all_gather_matmul,{A},dim=0,ranks=2,seed=1", "--out", "o.npy", *RANKS],
    ["run", "--problem", f"matmul_reduce_scatter,{A},dim=0,ranks=2,seed=1", "--out", "o.npy", *RANKS],
    ["run", "--problem", f"matmul_all_reduce,{A},ranks=2,seed=1", "--out", "o.safetensors", *RANKS],
    ["run", "all_gather_matmul", "--a", "a.npy", "--b", "b.npy", "--out", "o.npy", *RANKS],
    ["run", "low_contention_all_gather", "--a", "a.npy", "--out", "o.npy", *RANKS],
    ["run", "low_contention_reduce_scatter", "--a", "summands.npy", "--out", "o.npy", *RANKS],
    ["run", "matmul_4bit", "--a", "a.npy", "--b", "b.npy", "--out", "o.npy"],
    ["run", "matmul_4bit", "--a", "tall.npy", "--b", "wide.npy", "--out", "o.npy"],
    ["check", "--problem", f"all_gather_matmul,{A},dim=0,ranks=2,seed=1"],
    ["bench", "--problem", f"all_gather_matmul,{A},dim=0,ranks=2,seed=1", *RANKS],
    ["bench", "all_gather_matmul", *SIZES, *RANKS],
    ["bench", "mm", *SIZES, *RANKS],
    ["bench", "mm", "--peers", "openblas", *SIZES, "--dtype", "f32"],
    ["bench", "matmul_4bit", *SIZES],
    ["bench", "low_contention_all_gather", "--beside", "mm", *SIZES, *RANKS],
    ["tune", "all_gather_matmul", *SIZES, *RANKS, "--folder", "table"],
    ["program", "run", "--m", str(1 << 30), "--n", "64", "--k", str(1 << 17), *RANKS],
    ["graph", "run", "graph.txt"],
    ["graph", "run", "zeros.txt"],
    ["trace", "run", "--problem", f"all_gather_matmul,{A},dim=0,ranks=2,seed=1", "--out", "o.npy", *RANKS, "--out", "t"],
    ["trace", "bench", "all_gather_matmul", *SIZES, *RANKS, "--out", "t"],
]
# More than 256 MiB, and less than a machine has.
IN_GROUP = [
    ["run", "--problem", "all_gather_matmul,a=33554432x1,n=64,dim=0,ranks=2,seed=1", "--out", "o.npy", *RANKS],
    ["run", "--problem", "matmul_all_reduce,a=4096x8,n=4096,ranks=4,seed=1", "--out", "o.npy", "--ranks", "4"],
    ["demo", "--scale", "1", *RANKS],
    ["check", "--problem", "matmul_all_reduce,a=4096x8,n=4096,ranks=8,seed=1"],
    ["bench", "all_gather_matmul", "--m", "65536", "--n", "64", "--k", "65536", *RANKS],
    ["bench", "low_contention_all_gather", "--beside", "mm", "--mib", "512", "--m", "8", "--n", "8", "--k", "8", *RANKS],
    ["bench", "matmul_4bit", "--m", "65536", "--n", "64", "--k", "65536"],
    ["tune", "matmul_all_reduce", "--m", "65536", "--n", "4096", "--k", "64", *RANKS, "--folder", "table"],
    ["program", "run", "--m", "65536", "--n", "64", "--k", "65536", *RANKS],
    ["trace", "demo", "--scale", "1", *RANKS, "--out", "t"],
]


def write_sparse(folder):
    for name, content in SPARSE.items():
        path = pathlib.Path(folder, name)
        if isinstance(content, str):
            path.write_text(content)
            continue
        header = cli_tool.npy_bytes(content, [])
        path.write_bytes(header)
        os.truncate(path, len(header) + 4 * cli_tool.product(content))


@contextlib.contextmanager
def memory_group():
    """The file to which a process writes 0 to be in a group of 256 MiB; None where none can be made."""
    place = GROUPS / f"tandem_test_{os.getpid()}"
    try:
        place.mkdir()
    except OSError:
        yield None
        return
    try:
        (place / "memory.limit_in_bytes").write_text(str(GROUP_BYTES))
        yield place / "cgroup.procs"
    finally:
        cli_tool.wait_until(lambda: not (place / "cgroup.procs").read_text())
        place.rmdir()


class Memory(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="cli_memory_")
        self.addCleanup(self.folder.cleanup)
        write_sparse(self.folder.name)

    def run_limited(self, arguments, prepare):
        return subprocess.run([cli_tool.TOOL, *arguments], cwd=self.folder.name, env=cli_tool.environment_with(None),
                              capture_output=True, text=True, timeout=60, preexec_fn=prepare)

    def refuses(self, arguments, prepare):
        before = sorted(os.listdir(self.folder.name))
        done = self.run_limited(arguments, prepare)
        shown = f"tandem {' '.join(arguments)}\nstdout: {done.stdout}\nstderr: {done.stderr}"
        self.assertEqual(done.returncode, 2, shown)
        self.assertEqual(len(done.stderr.splitlines()), 1, shown)
        self.assertEqual(done.stdout, "", shown)
        found = re.search(r"(\d+) bytes asked for, (\d+) available by ", done.stderr)
        self.assertIsNotNone(found, shown)
        self.assertGreater(int(found[1]), int(found[2]), shown)
        self.assertEqual(sorted(os.listdir(self.folder.name)), before, shown)
        return done.stderr

    def test_more_than_there_is_is_refused_by_every_command(self):
        def prepare():  # a net: nothing comes near it
            resource.setrlimit(resource.RLIMIT_AS, (8 << 40, 8 << 40))
            resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
            resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 30, 8 << 30))

        for arguments in CASES:
            with self.subTest(" ".join(arguments)):
                self.refuses(arguments, prepare)

    def test_sizes_whose_product_overflows_are_refused(self):
        done = cli_tool.run("run", "matmul_4bit", "--a", "empty_a.npy", "--b", "empty_b.npy", "--out", "o.npy",
                            cwd=self.folder.name)
        self.assertEqual(done.returncode, 2, done.stderr)
        for sizes in (["--m", "0", "--n", "8", "--k", "32"], ["--m", "-1", "--n", "8", "--k", "32"],
                      ["--m", str(1 << 62), "--n", str(1 << 62), "--k", "32"]):
            done = cli_tool.run("bench", "matmul_4bit", *sizes)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("each needs to be from 1 to 16777216", done.stderr)

    def test_the_group_s_limit_counts_for_all_ranks_together(self):
        with memory_group() as procs:
            if procs is None:
                self.skipTest("no memory group can be made here")

            def prepare():
                procs.write_text("0")

            for arguments in IN_GROUP:
                with self.subTest(" ".join(arguments)):
                    self.assertIn(procs.parent.name, self.refuses(arguments, prepare))
            one = "matmul_all_reduce,a=2048x8,n=2048,ranks=1,seed=1"
            done = self.run_limited(["run", "--problem", one, "--out", "o.npy", "--ranks", "1"], prepare)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_limit_of_file_sizes_is_an_error_and_no_signal(self):
        problem = "all_gather_matmul,a=256x8,n=256,dim=0,ranks=2,seed=1"
        commands = [["run", "--problem", problem, "--out", "o.npy", *RANKS], ["check", "--problem", problem],
                    ["demo", "--scale", "1/64", "--seconds", "0.1", *RANKS]]
        for kib in (1, 8, 32, 128):
            def prepare(kib=kib):
                resource.setrlimit(resource.RLIMIT_FSIZE, (kib << 10, kib << 10))

            for arguments in commands:
                with self.subTest(f"ulimit -f {kib}; tandem {' '.join(arguments)}"):
                    done = self.run_limited(arguments, prepare)
                    self.assertIn(done.returncode, (0, 1, 2), done.stderr)
                    if done.returncode != 0:
                        self.assertIn("ulimit -f", done.stderr)
                    else:
                        self.assertGreaterEqual(kib, 32)


if __name__ == "__main__":
    cli_tool.main("__main__")
