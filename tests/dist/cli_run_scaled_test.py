"""`tandem run` in f8: operands that are quantised on load, and f8 files with their scales."""

import itertools
import math
import os
import pathlib
import shlex
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool
from cli_tool import pseudo_random, rounded, safetensors_bytes

OPS = ("all_gather_matmul", "matmul_reduce_scatter")
M, N, BLOCK = 5, 7, 128
LARGEST = {"f8e4m3": 448.0, "f8e5m2": 57344.0}
# Bits of the mantissa, and the exponent of the smallest normal number.
FORMATS = {"f8e4m3": (3, -6), "f8e5m2": (2, -14)}


def as_f8(value, dtype):
    """`value`, which does not overflow, rounded to nearest even."""
    if value == 0:
        return 0.0
    bits, least = FORMATS[dtype]
    step = 2.0 ** (max(math.frexp(value)[1] - 1, least) - bits)
    return round(value / step) * step


def f8_bits(value):
    """The byte of an f8e4m3 number."""
    sign = 0x80 if value < 0 else 0
    value = abs(value)
    exponent = max(math.frexp(value)[1] - 1, -6) if value else -6
    mantissa = int(value / 2.0 ** (exponent - 3))
    return sign | ((exponent + 7) << 3 | mantissa - 8 if mantissa >= 8 else mantissa)


def scale_groups(lines, scales, in_squares):
    """For each line and element the group that shares a scale."""
    for i, line in enumerate(lines):
        for j in range(len(line)):
            if scales == "tensor":
                yield i, j, ()
            elif scales == "row":
                yield i, j, (i,)
            else:
                yield i, j, (i // BLOCK if in_squares else i, j // BLOCK)


def quantised(lines, dtype, scales, in_squares=False):
    """Lines of k: what they are in f8, times their scales."""
    largest = {}
    for i, j, group in scale_groups(lines, scales, in_squares):
        largest[group] = max(largest.get(group, 0.0), abs(lines[i][j]))
    scale_of = {group: rounded(value / LARGEST[dtype], "f32") if value else 1.0 for group, value in largest.items()}
    result = [list(line) for line in lines]
    for i, j, group in scale_groups(lines, scales, in_squares):
        result[i][j] = as_f8(rounded(lines[i][j] / scale_of[group], "f32"), dtype) * scale_of[group]
    return result


class ScaledRun(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cli_run_scaled_")
        self.addCleanup(self.temporary.cleanup)
        self.folder = self.temporary.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def succeed(self, *arguments):
        done = cli_tool.run(*arguments)
        self.assertEqual(done.returncode, 0, f"tandem {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
        return done.stdout

    def assert_product(self, rows, columns, factor=1.0, exact=False):
        """The file out.npy against rows of a and columns of b."""
        sizes, got = cli_tool.read_npy(self.path("out.npy"))
        self.assertEqual(sizes, [len(rows), len(columns)])
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                terms = [x * y for x, y in zip(row, column)]
                tolerance = 0 if exact else 2.0**-24 * (len(row) + 16) * sum(map(abs, terms)) + 1e-30
                self.assertLessEqual(abs(got[i * len(columns) + j] - factor * sum(terms)), tolerance, (i, j))

    def quantise(self, op, ranks, dtype, scales, dim):
        k = BLOCK * ranks if scales == "block" and dim == 1 else 200
        a = [rounded(x, "f32") for x in pseudo_random(M * k, 1)]
        b = [rounded(x, "f32") for x in pseudo_random(k * N, 2)]
        a[0] *= 5
        a[k : 2 * k] = [0.0] * k
        cli_tool.write_npy(self.path("a.npy"), [M, k], a)
        cli_tool.write_npy(self.path("b.npy"), [k, N], b)
        files = ["--a", self.path("a.npy"), "--b", self.path("b.npy"), "--out", self.path("out.npy")]
        self.succeed("run", op, *files, "--ranks", ranks, "--dtype", dtype, "--scales", scales, "--out-dtype", "f32",
                     "--gather-dim" if op == "all_gather_matmul" else "--scatter-dim", dim)
        rows = quantised([a[i * k : (i + 1) * k] for i in range(M)], dtype, scales)
        self.assert_product(rows, quantised([b[i::N] for i in range(N)], dtype, scales, in_squares=True))

    def test_operands_are_quantised_on_load(self):
        for op, scales in itertools.product(OPS, ("tensor", "row", "block")):
            if scales == "block" and op == "matmul_reduce_scatter":
                continue  # it has none
            for ranks, dim, dtype in ((1, 0, "f8e4m3"), (3, 0, "f8e5m2"), (3, 1, "f8e4m3"), (8, 0, "f8e4m3")):
                with self.subTest(op=op, scales=scales, ranks=ranks, dim=dim, dtype=dtype):
                    self.quantise(op, ranks, dtype, scales, dim)

    def test_f8_files_with_scales(self):
        """Small whole numbers and powers of two: every sum is exact."""
        k = 200
        a = [(i * 5) % 7 - 3.0 for i in range(M * k)]
        b = [(i * 3) % 5 - 2.0 for i in range(k * N)]
        kb = 2
        blocks_of_a = [2.0 ** (i % 3) for i in range(M * kb)]
        cases = {
            "tensor": (([1], [2.0]), ([1], [0.5])),
            "row": (([M, 1], [2.0**i for i in range(M)]), ([1, N], [0.5 * 2.0 ** (i % 3) for i in range(N)])),
            "block": (([M, kb], blocks_of_a), ([kb, 1], [0.5, 4.0])),
            "vectors": (([M, kb], blocks_of_a), ([kb, N], [2.0 ** (i % 4) for i in range(kb * N)])),
        }
        for name, (sizes, values) in (("a", ([M, k], a)), ("b", ([k, N], b))):
            content = {"t": ("F8_E4M3", sizes, bytes(map(f8_bits, values)))}
            pathlib.Path(self.path(f"{name}.safetensors")).write_bytes(safetensors_bytes(content))
        for name, ((a_sizes, a_scale), (b_sizes, b_scale)) in cases.items():
            for op in OPS if name in ("tensor", "row") else OPS[:1]:
                with self.subTest(op=op, scales=name):
                    cli_tool.write_npy(self.path("as.npy"), a_sizes, a_scale)
                    cli_tool.write_npy(self.path("bs.npy"), b_sizes, b_scale)
                    text = self.succeed("run", op, "--a", self.path("a.safetensors"), "--b", self.path("b.safetensors"),
                                        "--a-scale", self.path("as.npy"), "--b-scale", self.path("bs.npy"),
                                        "--out-dtype", "f32", "--out", self.path("out.npy"), "--ranks", 3)

                    def a_at(i, j):
                        return a_scale[0 if name == "tensor" else i if name == "row" else i * kb + j // BLOCK]

                    def b_at(j, i):
                        if name in ("tensor", "row"):
                            return b_scale[0 if name == "tensor" else i]
                        return b_scale[j // BLOCK * b_sizes[1] + (i if name == "vectors" else 0)]

                    rows = [[a[i * k + j] * a_at(i, j) for j in range(k)] for i in range(M)]
                    columns = [[b[j * N + i] * b_at(j, i) for j in range(k)] for i in range(N)]
                    self.assert_product(rows, columns, exact=True)
        first = pathlib.Path(self.path("out.npy")).read_bytes()
        os.remove(self.path("out.npy"))
        again = next(line for line in text.splitlines() if line.startswith("again: "))
        self.succeed(*shlex.split(again)[2:])
        self.assertEqual(pathlib.Path(self.path("out.npy")).read_bytes(), first)

    def test_what_does_not_fit_is_named(self):
        cli_tool.write_npy(self.path("a.npy"), [2, 3], [1.0] * 6)
        cli_tool.write_npy(self.path("b.npy"), [3, 2], [1.0] * 6)
        cli_tool.write_npy(self.path("s.npy"), [3], [1.0] * 3)
        for name, sizes in (("a8", [2, 3]), ("b8", [3, 2])):
            content = {"t": ("F8_E4M3", sizes, bytes([0x38] * 6))}
            pathlib.Path(self.path(f"{name}.safetensors")).write_bytes(safetensors_bytes(content))
        plain = ["--a", self.path("a.npy"), "--b", self.path("b.npy")]
        narrow = ["--a", self.path("a8.safetensors"), "--b", self.path("b8.safetensors")]
        scale = self.path("s.npy")
        for arguments, words in (
            ([*plain, "--dtype", "f8e4m3"], "dtype f8e4m3 needs scales: pass --scales tensor, row or block"),
            ([*plain, "--scales", "row"], "need dtype f8e4m3 or f8e5m2"),
            ([*plain, "--dtype", "f8e4m3", "--scales", "rows"], "need tensor, row or block"),
            ([*plain, "--out-dtype", "bf16"], "only those of f8"),
            ([*plain, "--a-scale", scale, "--b-scale", scale], "need f8 files as they are"),
            ([*narrow, "--scales", "row"], "pass its scales by --a-scale and --b-scale"),
            ([*narrow, "--a-scale", scale], "pass one for each"),
            ([*narrow, "--a-scale", scale, "--b-scale", scale], "has sizes [3]: need"),
        ):
            with self.subTest(" ".join(arguments)):
                done = cli_tool.run("run", "all_gather_matmul", *arguments, "--out", self.path("out.npy"), "--ranks", 2)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(words, done.stderr)
                self.assertFalse(os.path.exists(self.path("out.npy")))


if __name__ == "__main__":
    cli_tool.main("__main__")
