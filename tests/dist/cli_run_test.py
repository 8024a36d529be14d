"""`tandem run` gives A*B, whatever the number of ranks, the type and the sharded dimension."""

import json
import os
import pathlib
import shlex
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool
from cli_tool import UNIT_ROUNDOFF, packed, product, pseudo_random, rounded, safetensors_bytes

KINDS = {"f32": "F32", "f16": "F16", "bf16": "BF16"}
# No size divides any number of ranks; the second has fewer rows than ranks.
SIZES_OF_A = {2: [7, 11], 3: [3, 5, 11]}
N = 13
ALL_RANKS = [1, 2, 3, 4, 8]


class Case:
    """Random tensors in files, and what a right result is."""

    def __init__(self, folder, sizes, dtype, seed, n=N):
        self.folder, self.sizes, self.dtype, self.n = folder, sizes, dtype, n
        self.k = sizes[-1]
        self.a = [rounded(x, dtype) for x in pseudo_random(product(sizes), seed)]
        self.b = [rounded(x, dtype) for x in pseudo_random(self.k * n, seed + 1)]
        self.a_file = self.save("a", sizes, self.a)
        self.b_file = self.save("b", [self.k, n], self.b)

    def save(self, name, sizes, values):
        """f16 and f32 as .npy, bf16 as .safetensors."""
        if self.dtype == "bf16":
            path = os.path.join(self.folder, f"{name}.safetensors")
            content = {"t": (KINDS[self.dtype], sizes, packed(values, self.dtype))}
            pathlib.Path(path).write_bytes(safetensors_bytes(content))
            return path
        path = os.path.join(self.folder, f"{name}.npy")
        cli_tool.write_npy(path, sizes, values, {"f16": "<f2", "f32": "<f4"}[self.dtype])
        return path

    def expected(self, ranks, scatters, average=False, bias=None):
        """[(value, tolerance)] in row-major order."""
        columns = [self.b[i :: self.n] for i in range(self.n)]
        return cli_tool.expected_product(self.a, columns, self.dtype, ranks, scatters, bias, average)


class Run(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cli_run_")
        self.addCleanup(self.temporary.cleanup)
        self.folder = self.temporary.name

    def succeed(self, *arguments):
        done = cli_tool.run(*arguments)
        self.assertEqual(done.returncode, 0, f"tandem {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
        self.assertEqual(done.stderr, "")
        return done.stdout

    def assert_near(self, got, expected):
        self.assertEqual(len(got), len(expected))
        for i, (value, (right, tolerance)) in enumerate(zip(got, expected)):
            self.assertLessEqual(abs(value - right), tolerance, f"element {i}: got {value}, need {right}")

    def product_is_right(self, op, ranks, dtype, num_dims, dim, average=False):
        sizes = SIZES_OF_A[num_dims]
        case = Case(self.folder, sizes, dtype, seed=ranks * 100 + num_dims * 10 + dim)
        out = os.path.join(self.folder, "out.npy")
        sums = op != "all_gather_matmul"
        flags = {"all_gather_matmul": ["--gather-dim", dim], "matmul_reduce_scatter": ["--scatter-dim", dim]}.get(op, [])
        if average:
            flags += ["--reduce", "avg"]
        text = self.succeed("run", op, "--a", case.a_file, "--b", case.b_file, "--out", out, "--ranks", ranks, *flags)
        self.assertIn(f"{ranks} rank", text.splitlines()[0])
        got_sizes, got = cli_tool.read_npy(out)
        self.assertEqual(got_sizes, sizes[:-1] + [N])
        self.assert_near(got, case.expected(ranks, sums, average))

    def every_product(self, op, dtype, average=False):
        for ranks in ALL_RANKS:
            for num_dims in (2, 3):
                for dim in range(num_dims if op != "matmul_all_reduce" else 1):
                    with self.subTest(op=op, dtype=dtype, ranks=ranks, num_dims=num_dims, dim=dim, average=average):
                        self.product_is_right(op, ranks, dtype, num_dims, dim, average)

    def test_all_gather_matmul_f32(self):
        self.every_product("all_gather_matmul", "f32")

    def test_all_gather_matmul_bf16(self):
        self.every_product("all_gather_matmul", "bf16")

    def test_all_gather_matmul_f16(self):
        self.every_product("all_gather_matmul", "f16")

    def test_matmul_reduce_scatter_f32(self):
        self.every_product("matmul_reduce_scatter", "f32")

    def test_matmul_reduce_scatter_bf16(self):
        self.every_product("matmul_reduce_scatter", "bf16")

    def test_matmul_reduce_scatter_mean_f16(self):
        self.every_product("matmul_reduce_scatter", "f16", average=True)

    def test_matmul_reduce_scatter_mean_bf16(self):
        self.every_product("matmul_reduce_scatter", "bf16", average=True)

    def test_matmul_all_reduce_f32(self):
        self.every_product("matmul_all_reduce", "f32")

    def test_matmul_all_reduce_mean_bf16(self):
        self.every_product("matmul_all_reduce", "bf16", average=True)

    def test_every_algorithm_gives_the_same_bytes(self):
        case = Case(self.folder, [9, 6], "bf16", seed=5)
        results = []
        for algorithm in ("serial", "pipelined", "auto"):
            out = os.path.join(self.folder, f"{algorithm}.safetensors")
            text = self.succeed("run", "matmul_reduce_scatter", "--a", case.a_file, "--b", case.b_file, "--out", out,
                                "--ranks", 3, "--algorithm", algorithm)
            if algorithm != "auto":
                self.assertIn(f"algorithm {algorithm}", text)
            results.append(pathlib.Path(out).read_bytes())
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[0], results[2])

    def test_several_bs_with_biases(self):
        case = Case(self.folder, [5, 6], "f32", seed=8, n=4)
        bias = pseudo_random(4, 77)
        cli_tool.write_npy(os.path.join(self.folder, "bias.npy"), [4], bias)
        outs = [os.path.join(self.folder, name) for name in ("x.npy", "y.npy")]
        self.succeed("run", "all_gather_matmul", "--a", case.a_file, "--b", case.b_file, "--b", case.b_file,
                     "--bias", os.path.join(self.folder, "bias.npy"), "--bias", os.path.join(self.folder, "bias.npy"),
                     "--out", outs[0], "--out", outs[1], "--ranks", 3)
        rounded_bias = [rounded(value, "f32") for value in bias]
        for out in outs:
            self.assert_near(cli_tool.read_npy(out)[1], case.expected(3, False, bias=rounded_bias))

    def test_bias_is_added_once(self):
        for dim in (0, 1):
            case = Case(self.folder, [5, 6], "f32", seed=9, n=4)
            bias = [rounded(value, "f32") for value in pseudo_random(4, 78)]
            cli_tool.write_npy(os.path.join(self.folder, "bias.npy"), [4], bias)
            out = os.path.join(self.folder, "out.npy")
            self.succeed("run", "matmul_reduce_scatter", "--a", case.a_file, "--b", case.b_file, "--out", out, "--ranks",
                         3, "--bias", os.path.join(self.folder, "bias.npy"), "--scatter-dim", dim, "--reduce", "avg")
            self.assert_near(cli_tool.read_npy(out)[1], case.expected(3, True, average=True, bias=bias))

    def test_types_of_files(self):
        """f64 runs as f32; --dtype converts; safetensors keep the type under the key `out`."""
        values = [0.1 * i for i in range(12)]
        a, b = os.path.join(self.folder, "a.npy"), os.path.join(self.folder, "b.npy")
        cli_tool.write_npy(a, [3, 4], values, "<f8")
        cli_tool.write_npy(b, [4, 3], values, "<f8")
        out = os.path.join(self.folder, "out.safetensors")
        for flags, kind, dtype in (([], "F32", "f32"), (["--dtype", "bf16"], "BF16", "bf16"), (["--dtype", "f16"], "F16", "f16")):
            self.succeed("run", "all_gather_matmul", "--a", a, "--b", b, "--out", out, "--ranks", 2, *flags)
            tensors = cli_tool.read_safetensors(out)
            self.assertEqual(list(tensors), ["out"])
            got_kind, sizes, got = tensors["out"]
            self.assertEqual((got_kind, list(sizes)), (kind, [3, 3]))
            x = [rounded(value, dtype) for value in values]
            for row in range(3):
                for column in range(3):
                    right = sum(x[row * 4 + i] * x[i * 3 + column] for i in range(4))
                    self.assertAlmostEqual(got[row * 3 + column] / right, 1, delta=2.1 * UNIT_ROUNDOFF[dtype])

    def test_fortran_order_is_read_as_it_is(self):
        a, b = os.path.join(self.folder, "a.npy"), os.path.join(self.folder, "b.npy")
        # [[1, 2, 3], [4, 5, 6]] column by column.
        pathlib.Path(a).write_bytes(cli_tool.npy_bytes([2, 3], [1, 4, 2, 5, 3, 6], fortran=True))
        cli_tool.write_npy(b, [3, 1], [1, 10, 100])
        out = os.path.join(self.folder, "out.npy")
        self.succeed("run", "all_gather_matmul", "--a", a, "--b", b, "--out", out, "--ranks", 2)
        self.assertEqual(cli_tool.read_npy(out), ([2, 1], [321.0, 654.0]))

    def test_the_printed_command_gives_the_same_file(self):
        case = Case(self.folder, [7, 5], "f32", seed=3)
        out = os.path.join(self.folder, "a b.npy")  # needs quoting
        text = self.succeed("run", "matmul_reduce_scatter", "--a", case.a_file, "--b", case.b_file, "--out", out,
                            "--ranks", 3)
        first = pathlib.Path(out).read_bytes()
        os.remove(out)
        import shlex

        again = next(line for line in text.splitlines() if line.startswith("again: "))
        words = shlex.split(again[len("again: ") :])
        self.assertEqual(words[0], "tandem")
        self.succeed(*words[1:])
        self.assertEqual(pathlib.Path(out).read_bytes(), first)


class FourBit(unittest.TestCase):
    """`tandem run matmul_4bit`: rounds, packs, multiplies and says how far the result is from float64."""

    M, K = 5, 64

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cli_run_4bit_")
        self.addCleanup(self.temporary.cleanup)
        self.a = [rounded(x, "f32") for x in pseudo_random(self.M * self.K, 1)]
        self.weight = [rounded(x, "f32") for x in pseudo_random(N * self.K, 2)]  # [n, k]
        self.bias = [rounded(x, "f32") for x in pseudo_random(N, 3)]
        columns = [self.weight[i % N * self.K + i // N] for i in range(N * self.K)]
        self.files = {
            "a": ([self.M, self.K], self.a), "w": ([N, self.K], self.weight), "b": ([self.K, N], columns),
            "bias": ([N], self.bias),
        }
        for name, (sizes, values) in self.files.items():
            cli_tool.write_npy(self.path(name), sizes, values)

    def path(self, name):
        return os.path.join(self.temporary.name, f"{name}.npy")

    def run_4bit(self, *arguments):
        return cli_tool.run("run", "matmul_4bit", "--a", self.path("a"), "--out", self.path("out"), *arguments)

    def stored(self, group):
        """The weight as 4 bits have it, computed anew."""
        values = []
        for begin in range(0, len(self.weight), group):
            part = self.weight[begin : begin + group]
            scale = rounded(max(map(abs, part)) / 7, "f32")
            values += [(min(int(w / scale + 8.5), 15) - 8) * scale for w in part]
        return values

    def rounded_to_8_bits(self):
        """The rows of a as asymmetric 8-bit integers have them, computed anew."""
        values = []
        for begin in range(0, len(self.a), self.K):
            row = self.a[begin : begin + self.K]
            low, high = min(0, *row), max(0, *row)
            step = (high - low) / 255
            zero = round(-128 - low / step)
            values += [(max(-128, min(127, round(x / step) + zero)) - zero) * step for x in row]
        return values

    def product(self, a, weight, bias):
        def element(row, column):
            return sum(a[row * self.K + i] * weight[column * self.K + i] for i in range(self.K))

        added = bias or [0] * N
        return [element(row, column) + added[column] for row in range(self.M) for column in range(N)]

    def error_against(self, weight, bias, out=None):
        out = out or cli_tool.read_npy(self.path("out"))[1]
        want = self.product(self.a, weight, bias)
        off = sum((got - value) ** 2 for got, value in zip(out, want, strict=True))
        return (off / sum(value**2 for value in want)) ** 0.5

    def test_result_and_errors(self):
        for group in (32, 64):
            for weight, turned in (("w", ["--transpose-b"]), ("b", [])):
                for bias, given in ((None, []), (self.bias, ["--bias", self.path("bias")])):
                    with self.subTest(group=group, weight=weight, bias=bool(bias)):
                        done = self.run_4bit("--b", self.path(weight), "--group-size", group, *turned, *given)
                        self.assertEqual(done.returncode, 0, done.stderr)
                        self.assertEqual(cli_tool.read_npy(self.path("out"))[0], [self.M, N])
                        words = done.stdout.split("error against float64: ")[1].split()
                        for printed, values in ((words[0], self.stored(group)), (words[5], self.weight)):
                            error = self.error_against(values, bias)
                            self.assertAlmostEqual(float(printed), error, delta=0.01 * error + 5e-5)
                        # The error against the weight as it was is that of roundings of our own.
                        own = self.product(self.rounded_to_8_bits(), self.stored(group), bias)
                        error = self.error_against(self.weight, bias, own)
                        self.assertAlmostEqual(float(words[5]), error, delta=0.01 * error)
                        self.assertLess(float(words[0]), 0.02)
                        again = shlex.split(done.stdout.split("again: tandem ")[1].splitlines()[0])
                        self.assertEqual(cli_tool.run(*again).returncode, 0)

    def test_what_does_not_fit(self):
        for arguments, text in (
            (["--b", self.path("w")], "it fits as [n, k]: pass --transpose-b"),
            (["--b", self.path("b"), "--transpose-b"], "it fits as it is: leave out --transpose-b"),
            (["--b", self.path("b"), "--group-size", 48], "group_size is 48, need 64 (in_features), or a multiple of 32"),
            (["--b", self.path("b"), "--bias", self.path("a")], "need [13], the columns of --b"),
            (["--b", self.path("b"), "--ranks", 2], "it multiplies f32 values in one process"),
            (["--b", self.path("b"), "--b", self.path("b")], "takes one --b"),
        ):
            with self.subTest(text):
                done = self.run_4bit(*arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(text, done.stderr)
        done = cli_tool.run("run", "all_gather_matmul", "--group-size", 32)
        self.assertEqual(done.returncode, 2)
        self.assertIn("only matmul_4bit takes it", done.stderr)

    def test_bench(self):
        rows = pathlib.Path(self.path("rows"))
        done = cli_tool.run(
            "bench", "matmul_4bit", "--m", "1,3", "--n", 40, "--k", 128, "--group-size", "32,0", "--iterations", 2,
            "--json", rows,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        written = [json.loads(line) for line in rows.read_text().splitlines()]
        self.assertEqual([(row["m"], row["group_size"]) for row in written], [(1, 32), (3, 32), (1, 128), (3, 128)])
        for row in written:
            self.assertTrue(row["t_us"] > 0 and row["t_f32_us"] > 0 and row["t_read_us"] > 0 and row["cpu"])
        for arguments, text in (
            (["--m", 1], "needs --m, --n and --k, or --preset 7b or 2b"),
            (["--preset", "seed"], "need 7b or 2b for matmul_4bit"),
            (["--m", 1, "--n", 32, "--k", 64, "--group-size", 48], "group_size is 48"),
        ):
            done = cli_tool.run("bench", "matmul_4bit", *arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    cli_tool.main("__main__")
