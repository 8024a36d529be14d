"""What an error about a file tells its reader to do is done here, and must help."""

import os
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool
from cli_tool import npy_bytes, packed, safetensors_bytes

try:
    import ml_dtypes
    import numpy as np
except ImportError:
    np = None

ONES = {kind: packed([1.0] * 12, dtype) for kind, dtype in (("F32", "f32"), ("F16", "f16"), ("BF16", "bf16"))}


def tensors(**shapes):
    """name=(type, sizes): ones, or zeros of types that have no ones here."""
    bits = {"F8_E4M3": 8, "U16": 16, "I32": 32, "U8": 8}
    content = {}
    for name, (kind, sizes) in shapes.items():
        count = cli_tool.product(sizes)
        data = ONES[kind] * count if kind in ONES else b"\0" * 12 * count
        size = {"F32": 4, "F16": 2, "BF16": 2}.get(kind) or bits[kind] // 8
        content[name] = (kind, sizes, data[: size * count])
    return safetensors_bytes(content)


FILES = {
    "a.npy": npy_bytes([3, 4], [1.0] * 12),
    "b.npy": npy_bytes([4, 5], [1.0] * 20),
    "a_i.npy": npy_bytes([3, 4], [1] * 12, "<i4"),
    "twice.npy": npy_bytes([3, 4], [1.0] * 12) * 2,
    "square.npy": npy_bytes([4, 4], [1.0] * 16),
    "b_f16.npy": npy_bytes([4, 5], [1.0] * 20, "<f2"),
    "nk.npy": npy_bytes([5, 4], [1.0] * 20),
    "bias.npy": npy_bytes([5], [1.0] * 5),
    "two.safetensors": tensors(x=("F32", [3, 4]), layers_0_y=("F32", [3, 4])),
    "f8.safetensors": tensors(a=("F8_E4M3", [3, 4])),
    "mixed.safetensors": tensors(s=("U16", [3, 4]), d=("F32", [1] * 8 + [12])),
    "stored.safetensors": tensors(s=("F32", [3, 4]), d=("F32", [3, 4])),
    "part.bin": tensors(a=("F32", [3, 4])),
    "m/m.safetensors.index.json": b'{"weight_map":{"a":"part.safetensors"}}',
    "two_models/1.safetensors": tensors(a=("F32", [3, 4])),
    "two_models/2.safetensors": tensors(a=("F32", [3, 4])),
}

AG = ["run", "all_gather_matmul"]


def with_a(a):
    return [*AG, "--a", a, "--b", "b.npy", "--out", "o.npy"]


def with_b(*b):
    return [*AG, "--a", "a.npy", *[word for file in b for word in ("--b", file)],
            *[word for i in range(len(b)) for word in ("--out", f"o{i}.npy")]]


def move(source, target):
    return lambda folder: os.replace(folder / source, folder / target)


# (refused, what the line says, what its reader does, what then passes)
REMEDIES = [
    (with_a("two.safetensors"), "name one of 'x', 'layers_0_y'", None, with_a("two.safetensors#x")),
    (with_a("two.safetensors#y"), "there is 'layers_0_y'", None, with_a("two.safetensors#layers_0_y")),
    (with_a("a.npy#x"), "leave out '#x'", None, with_a("a.npy")),
    (with_a("mixed.safetensors#s"), "F32 F16 BF16 F8_E4M3 F8_E5M2 I64 I32 I8 U32 U8 BOOL: store it as one of these", None,
     with_a("stored.safetensors#s")),
    (with_a("mixed.safetensors#d"), "reshape it before it is stored", None, with_a("stored.safetensors#d")),
    (with_a("a_i.npy"), "store it as f16, bf16, f32 or f64", None, with_a("a.npy")),
    (with_a("f8.safetensors"), "pass --dtype f32, f16 or bf16", None, [*with_a("f8.safetensors"), "--dtype", "bf16"]),
    (with_b("b_f16.npy"), "pass --dtype to convert both", None, [*with_b("b_f16.npy"), "--dtype", "f16"]),
    (with_a("part.bin"), "whose name ends in .npy, .safetensors", move("part.bin", "part.safetensors"),
     with_a("part.safetensors")),
    (with_a("m#a"), "put it beside the index", move("part.bin", "m/part.safetensors"), with_a("m#a")),
    (with_a("two_models#a"), "name one of '1.safetensors', '2.safetensors'", None, with_a("two_models/2.safetensors#a")),
    (with_a("twice.npy"), "save each array in a file of its own", None, with_a("a.npy")),
    (with_a("pipe.npy"), "copy it to one first", lambda folder: (os.remove(folder / "pipe.npy"),
                                                                (folder / "pipe.npy").write_bytes(FILES["a.npy"])),
     with_a("pipe.npy")),
    (with_b("nk.npy"), "it fits as [n, k]: pass --transpose-b", None, [*with_b("nk.npy"), "--transpose-b"]),
    (with_b("nk.npy", "square.npy"), "it fits as [n, k]: pass --transpose-b", None,
     [*with_b("nk.npy", "square.npy"), "--transpose-b"]),
    ([*with_b("b.npy"), "--transpose-b"], "it fits as it is: leave out --transpose-b", None, with_b("b.npy")),
    (with_b("b.npy", "nk.npy"), "it fits with --transpose-b, but not every --b does: run it on its own", None,
     [*with_b("nk.npy"), "--transpose-b"]),
    ([*with_b("b.npy", "nk.npy"), "--transpose-b"],
     "it fits without --transpose-b, but not every --b does: run it on its own", None, with_b("b.npy")),
    ([*with_b("b.npy", "b.npy"), "--bias", "bias.npy"], "pass one for each or none", None,
     [*with_b("b.npy", "b.npy"), "--bias", "bias.npy", "--bias", "bias.npy"]),
    ([*AG, "--a", "a.npy", "--b", "b.npy", "--out", "new/o.npy"], "make its folder first", lambda folder: os.mkdir(folder / "new"),
     [*AG, "--a", "a.npy", "--b", "b.npy", "--out", "new/o.npy"]),
    ([*AG, "--a", "a.npy", "--b", "b.npy", "--out", "link.npy"], "remove it", lambda folder: os.remove(folder / "link.npy"),
     [*AG, "--a", "a.npy", "--b", "b.npy", "--out", "link.npy"]),
    ([*AG, "--a", "a.npy", "--b", "b.npy", "--out", "o.txt"], "ends in .npy or .safetensors", None, with_a("a.npy")),
]

# What numpy writes, and the array it was.
ARRAYS = {
    "bfloat16": "np.arange(12.).reshape(3, 4).astype(ml_dtypes.bfloat16)",
    "float8_e4m3fn": "np.arange(12.).reshape(3, 4).astype(ml_dtypes.float8_e4m3fn)",
    "float8_e5m2": "np.arange(12.).reshape(3, 4).astype(ml_dtypes.float8_e5m2)",
    "big-endian": "np.arange(12.).reshape(3, 4).astype('>f4')",
    "u2": "np.arange(12).reshape(3, 4).astype(np.uint16)",
    "i2": "np.arange(12).reshape(3, 4).astype(np.int16)",
    "u8": "np.arange(12).reshape(3, 4).astype(np.uint64)",
    "longdouble": "np.arange(12.).reshape(3, 4).astype(np.longdouble)",
    "text": "np.array([['1.5', '2'], ['3', '4']])",
    "bytes of text": "np.array([[b'1.5', b'2']])",
    "dates": "np.array([['2020-01-01', '2021-01-01']], 'M8[s]')",
    "times": "np.array([[1, 2]], 'm8[s]')",
    "void": "np.arange(12.).reshape(3, 4).astype(np.float32).view('V4')",
    "complex": "np.arange(12.).reshape(3, 4).astype(np.complex64)",
    "objects": "np.array([[1.5, 2.0]], object)",
    "fields": "np.array([[(1, 2)]], [('field', '<f4'), ('b', '<f4')])",
}
# Python in an error's text, by what it needs; run as it stands.
PYTHON = re.compile(r"np\.load\(file\)(?:\.view\([\w.]+\))?(?:\.astype\(np\.float32\)|\.real|\['field'\])?|"
                    r"array\.astype\(np\.float32\)|np\.array\(objects, np\.float32\)")


class Remedies(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="cli_remedies_")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def make_files(self):
        for name, content in FILES.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        os.mkfifo(self.folder / "pipe.npy")
        (self.folder / "link.npy").symlink_to("nothing.npy")

    def run_tool(self, arguments):
        return cli_tool.run(*arguments, "--ranks", 2, cwd=self.folder)

    def test_each_helps(self):
        for refused, says, do, then in REMEDIES:
            with self.subTest(" ".join(refused)), tempfile.TemporaryDirectory(prefix="cli_remedies_") as folder:
                self.folder = pathlib.Path(folder)
                self.make_files()
                before = self.run_tool(refused)
                self.assertIn(before.returncode, (2, 4), before.stdout)
                self.assertIn(says, before.stderr)
                if do:
                    do(self.folder)
                after = self.run_tool(then)
                self.assertEqual(after.returncode, 0, after.stderr)

    @unittest.skipIf(np is None, "numpy and ml_dtypes are not installed")
    def test_python_that_is_printed_runs(self):
        file = self.folder / "x.npy"
        for kind, made in ARRAYS.items():
            with self.subTest(kind):
                names = {"np": np, "ml_dtypes": ml_dtypes, "file": file}
                array = names["array"] = names["objects"] = eval(made, names)
                np.save(file, array)
                done = cli_tool.run(*AG, "--a", "x.npy", "--b", "b.npy", "--out", "o.npy", cwd=self.folder)
                self.assertEqual(done.returncode, 2, done.stdout)
                expression = PYTHON.search(done.stderr.split("need one of")[-1])
                self.assertIsNotNone(expression, done.stderr)
                saved = eval(expression[0], names)
                if kind not in ("void", "fields", "text", "bytes of text", "dates", "times", "complex"):
                    np.testing.assert_array_equal(saved, array.astype(np.float64))
                np.save(file, saved)
                columns = saved.shape[-1]
                np.save(self.folder / "b.npy", np.eye(columns, dtype=np.float32))
                done = cli_tool.run(*AG, "--a", "x.npy", "--b", "b.npy", "--out", "o.npy", "--ranks", 2, cwd=self.folder)
                self.assertEqual(done.returncode, 0, done.stderr)
                np.testing.assert_array_equal(np.load(self.folder / "o.npy"), saved.astype(np.float32))


if __name__ == "__main__":
    cli_tool.main("__main__")
