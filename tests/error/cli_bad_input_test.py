"""Bad files and flags: each is exit 2, one line on stderr with the values and the remedy, and no output file."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool
from cli_tool import npy_bytes, packed, safetensors_bytes

F32_24 = packed([0.5] * 24, "f32")


def good_files(folder):
    """Files that fit together: a [4, 6], b [6, 5]."""
    return {
        "a.npy": npy_bytes([4, 6], [0.5] * 24),
        "b.npy": npy_bytes([6, 5], [0.25] * 30),
        "bias.npy": npy_bytes([5], [1.0] * 5),
        "b_f16.npy": npy_bytes([6, 5], [0.25] * 30, "<f2"),
        "one.safetensors": safetensors_bytes({"x": ("F32", [4, 6], F32_24)}),
        "two.safetensors": safetensors_bytes({"x": ("F32", [4, 6], F32_24), "y": ("F32", [4, 6], F32_24)}),
    }


def bad_files(folder):
    whole = npy_bytes([4, 6], [0.5] * 24)
    offsets = lambda begin, end, shape=(4, 6): {
        "x": {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
    }
    overlap = {
        "x": {"dtype": "F32", "shape": [4, 3], "data_offsets": [0, 48]},
        "y": {"dtype": "F32", "shape": [4, 3], "data_offsets": [24, 72]},
    }
    return {
        "empty.npy": b"",
        "short.npy": whole[:-4],
        "magic.npy": b"NOTNUMPY" + whole[8:],
        "big_endian.npy": npy_bytes([4, 6], [0.5] * 24, ">f4"),
        "integers.npy": npy_bytes([4, 6], [1] * 24, "<i4"),
        "huge.npy": npy_bytes([0], [], header="{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 4), }"),
        "negative.npy": npy_bytes([0], [], header="{'descr': '<f4', 'fortran_order': False, 'shape': (-4, 6), }"),
        "header.npy": npy_bytes([0], [], header="{'descr': '<f4', 'fortran_order': Maybe, 'shape': (4, 6), }"),
        "one_dim.npy": npy_bytes([24], [0.5] * 24),
        "three_dims.npy": npy_bytes([1, 6, 5], [0.5] * 30),
        "other_k.npy": npy_bytes([7, 5], [0.5] * 35),
        "long_bias.npy": npy_bytes([6], [0.5] * 6),
        "length.safetensors": (1 << 40).to_bytes(8, "little") + b"{}",
        "json.safetensors": (9).to_bytes(8, "little") + b'{"x": [,}',
        "overlap.safetensors": safetensors_bytes({"x": ("F32", [18], packed([0.5] * 18, "f32"))}, overlap),
        "outside.safetensors": safetensors_bytes({"x": ("F32", [24], F32_24)}, offsets(0, 960)),
        "size.safetensors": safetensors_bytes({"x": ("F32", [24], F32_24)}, offsets(0, 96, (4, 7))),
        "type.safetensors": safetensors_bytes({"x": ("I16", [4, 6], b"\0" * 48)}),
        "no_columns.npy": npy_bytes([2147483648, 0], []),
        "no_rows.npy": npy_bytes([0, 2147483648], []),
        "text.txt": b"0.5 0.5",
    }


AG = ["run", "all_gather_matmul"]
RS = ["run", "matmul_reduce_scatter"]
A = ["--a", "a.npy"]
B = ["--b", "b.npy"]
OUT = ["--out", "out.npy"]


def with_a(name):
    return [*AG, "--a", name, *B, *OUT, "--ranks", "2"]


def with_b(name):
    return [*AG, *A, "--b", name, *OUT, "--ranks", "2"]


# (arguments, words that the line must hold)
CASES = [
    # files
    (with_a("nowhere.npy"), ["--a", "nowhere.npy"]),
    (with_a("folder.npy"), ["--a", "folder.npy"]),
    (with_a("empty.npy"), ["empty.npy"]),
    (with_a("short.npy"), ["short.npy", "96"]),
    (with_a("magic.npy"), ["magic.npy"]),
    (with_a("big_endian.npy"), [">f4"]),
    (with_a("integers.npy"), ["integers.npy", "i32"]),
    (with_a("huge.npy"), ["9223372036854775807"]),
    (with_a("negative.npy"), ["negative.npy"]),
    (with_a("header.npy"), ["header.npy"]),
    (with_a("one_dim.npy"), ["[24]", "at least two dimensions"]),
    (with_b("three_dims.npy"), ["three_dims.npy", "[1, 6, 5]", "two dimensions"]),
    (with_b("other_k.npy"), ["other_k.npy", "7", "6", "equal"]),
    (with_b("b_f16.npy"), ["f16", "f32", "--dtype"]),
    (with_b("text.txt"), ["text.txt", ".npy", ".safetensors"]),
    (with_a("a.npy#x"), ["#x", "leave out"]),
    (with_a("length.safetensors"), ["length.safetensors"]),
    (with_a("json.safetensors"), ["json.safetensors"]),
    (with_a("overlap.safetensors"), ["overlap.safetensors"]),
    (with_a("outside.safetensors"), ["outside.safetensors", "960"]),
    (with_a("size.safetensors"), ["size.safetensors"]),
    (with_a("type.safetensors"), ["I16"]),
    (with_a("one.safetensors#z"), ["z", "x"]),
    (with_a("two.safetensors"), ["x", "y"]),
    ([*AG, *A, *B, *OUT, "--bias", "long_bias.npy"], ["long_bias.npy", "[6]", "[5]"]),
    ([*AG, *A, *B, *B, "--out", "out.npy", "--out", "p.npy", "--bias", "bias.npy"], ["1 --bias", "2 --b"]),
    # outputs
    ([*AG, *A, *B], ["0 --out", "1 result"]),
    ([*AG, *A, *B, "--out", "out.csv"], ["out.csv", ".npy"]),
    ([*AG, *A, *B, "--out", "no/where/out.npy"], ["no/where", "make it"]),
    ([*AG, *A, *B, "--out", "folder.npy"], ["folder.npy", "folder"]),
    ([*AG, *A, *B, *B, *OUT, *OUT], ["out.npy", "twice"]),
    ([*AG, *A, *B, *B, *OUT, "--out", "./out.npy"], ["out.npy", "twice"]),
    ([*AG, *A, *B, "--out", "to_nothing.npy"], ["to_nothing.npy", "symbolic link"]),
    ([*AG, *A, *B, "--out", "round.npy"], ["round.npy", "symbolic link"]),
    ([*AG, *A, *B, "--out", "pipe.npy"], ["pipe.npy", "regular file"]),
    # flags
    (["run", "all_gather_matmull", *A, *B, *OUT], ["all_gather_matmull", "matmul_reduce_scatter"]),
    ([*AG, *B, *OUT], ["--a"]),
    ([*AG, *A, *B, *OUT, "--gather-dim", "-1"], ["--gather-dim", "-1", "[0, 2)"]),
    ([*AG, *A, *B, *OUT, "--gather-dim", "2"], ["--gather-dim", "2", "[0, 2)"]),
    ([*RS, *A, *B, *OUT, "--scatter-dim", "-2"], ["--scatter-dim", "-2", "[0, 2)"]),
    ([*AG, *A, *B, *OUT, "--gather-dim", "x"], ["--gather-dim", "x"]),
    ([*AG, *A, *B, *OUT, "--scatter-dim", "0"], ["--scatter-dim", "--gather-dim"]),
    ([*RS, *A, *B, *OUT, "--gather-dim", "0"], ["--gather-dim", "--scatter-dim"]),
    ([*RS, *A, *B, *B, *OUT, "--out", "p.npy"], ["exactly one", "2"]),
    ([*AG, *A, *B, *OUT, "--reduce", "avg"], ["avg"]),
    ([*RS, *A, *B, *OUT, "--reduce", "max"], ["max", "sum"]),
    ([*AG, *A, *B, *OUT, "--ranks", "0"], ["--ranks", "0", "1 to 64"]),
    ([*AG, *A, *B, *OUT, "--ranks", "-3"], ["--ranks", "-3", "1 to 64"]),
    ([*AG, *A, *B, *OUT, "--ranks", "65"], ["--ranks", "65", "1 to 64"]),
    ([*AG, *A, *B, *OUT, "--ranks", "two"], ["--ranks", "two"]),
    ([*AG, *A, *B, *OUT, "--dtype", "f33"], ["f33", "bf16"]),
    ([*AG, *A, *B, *OUT, "--algorithm", "quick"], ["quick", "pipelined"]),
    ([*AG, *A, *B, *OUT, "--backend", "tpu"], ["tpu", "cpu"]),
    ([*AG, *A, *B, *OUT, "--colour"], ["--colour", "--help"]),
    (["run", "--problem", "all_gather_matmul,a=3x5,n=9", *A, *OUT], ["--problem", "--a"]),
    (["run", "--problem", "all_gather_matmul,a=3x5,n=9", *OUT, "--algorithm", "serial"], ["--algorithm", "--problem"]),
    (["run", "all_gather_matmul", "--problem", "all_gather_matmul,a=3x5,n=9", *OUT], ["op", "--problem"]),
    (["run", "--problem", "all_gather_matmul,a=3x5,n=9", *OUT, "--dtype", "f16"], ["--dtype", "--problem"]),
    (["run", "--problem", "matmul_reduce_scatter,a=3x5,n=9", *OUT, "--reduce", "avg"], ["--reduce", "--problem"]),
    (["run", "--problem", "matmul_reduce_scatter,a=3x5,n=9,gathered=1", *OUT], ["gathers nothing", "gathered=1"]),
    (["run", "--problem", "matmul_all_reduce,a=3x5,n=9,dim=1", *OUT], ["matmul_all_reduce", "leave it out"]),
    (["run", "matmul_all_reduce", "--a", "a", "--b", "b", "--scatter-dim", "0", *OUT], ["takes no dimension"]),
    (["run", "--problem", "all_gather_matmul,a=2147483648x2147483648,n=3", *OUT], ["[2147483648, 2147483648]", "elements"]),
    ([*AG, "--a", "no_columns.npy", "--b", "no_rows.npy", *OUT], ["[2147483648, 2147483648]", "elements"]),
    (["run", "--problem", "all_gather_matmul,a=3x5,n", *OUT], ["'n'", "key=value"]),
    (["run", "--problem", "all_gather_matmul,a=3x5,n=9,m=3", *OUT], ["'m'"]),
    (["run", "--problem", "all_gather_matmul,a=3xq,n=9", *OUT], ["'q'"]),
    (["check", "--ranks", "0"], ["--ranks", "0"]),
    (["check", "--dtype", "i32"], ["i32", "bf16"]),
    (["check", "nothing"], ["nothing"]),
    (["check", "--problem", "all_gather_matmul,a=3x5,n=9", "--ranks", "3"], ["--ranks", "--problem"]),
    (["bench", "mm", "--m", "0", "--n", "4", "--k", "4"], ["--m 0"]),
    (["bench", "mm", "--m", "4"], ["--n"]),
    (["bench", "--problem", "all_gather_matmul,a=3x5,n=9", "--algorithm", "native"], ["--algorithm", "--problem"]),
    (["bench", "--problem", "all_gather_matmul,a=3x5,n=9", "--b-order", "column"], ["--b-order", "--problem"]),
    (["tune", "--m", "8", "--n", "8", "--k", "8", "--b-order", "row,column"], ["--b-order", "name one"]),
    (["bench", "mm", "--preset", "llama9"], ["llama9", "seed"]),
    (["bench", "mm", "--preset", "random:0"], ["random:0", "random:1 to random:1000"]),
    (["bench", "mm", "--preset", "random:2x"], ["random:2x"]),
    (["bench", "mm", "--preset", "seed", "--scale", "3"], ["--scale", "3"]),
    (["bench", "mm", "--m", "4", "--n", "4", "--k", "4", "--iterations", "0"], ["--iterations", "0"]),
    (["bench", "mm", "--m", "4", "--n", "4", "--k", "4", "--json", "no/where.json"], ["no/where.json"]),
    (["bench"], ["op"]),
    (["bench", "peaks", "--m", "4"], ["bench peaks takes", "--all-cores"]),
    (["bench", "peaks", "--ranks", "2"], ["bench peaks takes"]),
    (["bench", "peaks", "--iterations", "0"], ["--iterations", "0"]),
    (["bench", "mm", "--m", "4", "--n", "4", "--k", "4", "--all-cores"], ["--all-cores", "peaks"]),
    (["bench", "mm", "--m", "4", "--n", "4", "--k", "4", "--link", "0.5"], ["--link", "peer"]),
    (["bench", "all_gather_matmul", "--m", "4", "--n", "4", "--k", "4", "--ranks", "1", "--link", "0.5"], ["--link", "2 ranks"]),
    (["bench", "all_gather_matmul", "--m", "4", "--n", "4", "--k", "4", "--ranks", "2", "--link", "-1"], ["--link -1", "above 0"]),
    (["bench", "all_gather_matmul", "--m", "4", "--n", "4", "--k", "4", "--link", "0.5", "--link-delay-us", "9"],
     ["--link", "--link-delay-us"]),
    (["demo", "--scale", "2"], ["--scale", "2"]),
    (["demo", "--preset", "llama9"], ["llama9"]),
    (["demo", "--slices", "2", "--ranks", "4"], ["--slices 2", "4, the number of ranks"]),
    (["demo", "--json", "/dev/null/rows.json"], ["--json /dev/null/rows.json", "Not a directory"]),
    (["demo", "--seconds", "0"], ["--seconds", "0"]),
    (["demo", "--dtype", "f8e4m3"], ["dtype f8e4m3 needs scales: pass --scales tensor, row or block"]),
    (["demo", "--dtype", "f8e4m3", "--scales", "rows"], ["'rows'", "need tensor, row or block"]),
    (["demo", "--scales", "row"], ["--scales row with dtype bf16"]),
    (["demo", "--fast-accum"], ["--fast-accum with dtype bf16"]),
    (["demo", "--dtype", "f8e5m2", "--scales", "row"], ["demo --dtype f8e5m2", "need bf16 or f8e4m3"]),
    (["demo", "--dtype", "f9"], ["'f9'"]),
    (["sing"], ["sing"]),
    ([], ["--help"]),
]


class BadInput(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="cli_bad_input_")
        self.addCleanup(self.folder.cleanup)
        for name, content in {**good_files(self.folder.name), **bad_files(self.folder.name)}.items():
            pathlib.Path(self.folder.name, name).write_bytes(content)
        os.mkdir(os.path.join(self.folder.name, "folder.npy"))
        os.mkfifo(os.path.join(self.folder.name, "pipe.npy"))
        os.symlink("nothing.npy", os.path.join(self.folder.name, "to_nothing.npy"))
        os.symlink("round.npy", os.path.join(self.folder.name, "round.npy"))

    def refused(self, arguments, words, env=None):
        before = sorted(os.listdir(self.folder.name))
        done = cli_tool.run(*arguments, cwd=self.folder.name, env=env)
        shown = f"tandem {' '.join(arguments)}\nstdout: {done.stdout}\nstderr: {done.stderr}"
        self.assertEqual(done.returncode, 2, shown)
        self.assertEqual(len(done.stderr.splitlines()), 1, shown)
        self.assertEqual(done.stdout, "", shown)
        for word in words:
            self.assertIn(word, done.stderr, shown)
        self.assertEqual(sorted(os.listdir(self.folder.name)), before, shown)

    def test_every_case_is_refused(self):
        for arguments, words in CASES:
            with self.subTest(" ".join(arguments)):
                self.refused(arguments, words)

    def test_bad_settings_are_refused(self):
        for name, value in {
            "TANDEM_SPIN_US": "soon",
            "TANDEM_OP_TIMEOUT_MS": "0",
            "TANDEM_ISA": "sse9",
            "TANDEM_FAULT": "get:1",
            "TANDEM_LOG": "loud",
        }.items():
            with self.subTest(name):
                self.refused([*AG, *A, *B, *OUT], [name, value], env={name: value})

    def test_closed_streams_change_no_exit_code(self):
        for closed in (">&-", "2>&-", "<&-", "<&- >&- 2>&-"):
            for name, expected in (("one_dim.npy", 2), ("a.npy", 0)):
                with self.subTest(f"{closed} {name}"):
                    line = f'"$0" "$@" {closed}'
                    done = subprocess.run(["sh", "-c", line, cli_tool.TOOL, *with_a(name)], cwd=self.folder.name,
                                          capture_output=True, timeout=60)
                    self.assertEqual(done.returncode, expected, done.stderr)

    def test_a_report_that_cannot_be_written_is_no_success(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([cli_tool.TOOL, *with_a("a.npy")], cwd=self.folder.name, stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1), done.stderr)

    def test_the_good_files_pass(self):
        done = cli_tool.run(*AG, *A, *B, *OUT, "--bias", "bias.npy", "--ranks", "2", cwd=self.folder.name)
        self.assertEqual(done.returncode, 0, done.stderr)
        sizes, values = cli_tool.read_npy(os.path.join(self.folder.name, "out.npy"))
        self.assertEqual((sizes, values), ([4, 5], [1.75] * 20))


if __name__ == "__main__":
    cli_tool.main("__main__")
