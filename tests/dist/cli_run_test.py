"""`tandem run` gives A*B, whatever the number of ranks, the type and the sharded dimension."""

import os
import pathlib
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


if __name__ == "__main__":
    cli_tool.main("__main__")
