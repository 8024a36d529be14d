"""Weights as models store them: [n, k] (`--transpose-b`), in several files by an index, under names with any letters;
and every command of the guide."""

import json
import os
import pathlib
import shlex
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool
from cli_tool import packed, product, pseudo_random, rounded, safetensors_bytes

KINDS = {"f32": "F32", "f16": "F16", "bf16": "BF16"}
GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs/guide/checkpoint.md"


def write_tensors(path, tensors):
    """tensors: name -> (dtype, sizes, values)."""
    content = {name: (KINDS[dtype], sizes, packed(values, dtype)) for name, (dtype, sizes, values) in tensors.items()}
    pathlib.Path(path).write_bytes(safetensors_bytes(content))


def random_tensor(dtype, sizes, seed):
    return dtype, list(sizes), [rounded(x, dtype) for x in pseudo_random(product(sizes), seed)]


def multiplied(a, b, dtype, ranks, scatters, bias=None):
    """[(value, tolerance)] of a [..., k] times the transposed b [n, k], in row-major order; inputs rounded to dtype."""
    k = a[1][-1]
    left, right = ([rounded(x, dtype) for x in tensor[2]] for tensor in (a, b))
    columns = [right[i : i + k] for i in range(0, len(right), k)]
    return cli_tool.expected_product(left, columns, dtype, ranks, scatters, bias)


class InFolder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="cli_checkpoint_")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_tool(self, *arguments):
        return cli_tool.run(*arguments, cwd=self.folder)

    def succeed(self, *arguments):
        done = self.run_tool(*arguments)
        self.assertEqual(done.returncode, 0, f"tandem {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
        self.assertEqual(done.stderr, "")
        return done.stdout

    def assert_near(self, out, expected):
        tensors = cli_tool.read_safetensors(self.folder / out)
        got = tensors["out"][2]
        self.assertEqual(len(got), len(expected))
        for i, (value, (right, tolerance)) in enumerate(zip(got, expected)):
            self.assertLessEqual(abs(value - right), tolerance, f"element {i}: got {value}, need {right}")


class TransposeB(InFolder):
    def test_every_op_type_and_number_of_ranks(self):
        for op, dtype, ranks, dim in (
            (op, dtype, ranks, dim)
            for op in ("all_gather_matmul", "matmul_reduce_scatter")
            for dtype in KINDS
            for ranks in (1, 2, 3, 8)
            for dim in (0, 1)
        ):
            with self.subTest(op=op, dtype=dtype, ranks=ranks, dim=dim):
                scatters = op == "matmul_reduce_scatter"
                a = random_tensor(dtype, [5, 11], ranks)
                b = random_tensor(dtype, [7, 11], ranks + 10)
                write_tensors(self.folder / "in.safetensors", {"a": a, "b": b})
                self.succeed("run", op, "--a", "in.safetensors#a", "--b", "in.safetensors#b", "--transpose-b", "--out",
                             "out.safetensors", "--ranks", ranks, "--scatter-dim" if scatters else "--gather-dim", dim)
                self.assert_near("out.safetensors", multiplied(a, b, dtype, ranks, scatters))

    def test_several_bs_with_biases_and_conversion(self):
        """f32 and f16 weights, an A of three dimensions, and all of it in bf16."""
        a = random_tensor("f32", [3, 2, 6], 1)
        b = [random_tensor("f32", [9, 6], 2), random_tensor("f16", [4, 6], 3)]
        bias = [random_tensor("bf16", [9], 4), random_tensor("bf16", [4], 5)]
        write_tensors(self.folder / "in.safetensors",
                      {"a": a, "b0": b[0], "b1": b[1], "bias0": bias[0], "bias1": bias[1]})
        self.succeed("run", "all_gather_matmul", "--a", "in.safetensors#a", "--b", "in.safetensors#b0", "--b",
                     "in.safetensors#b1", "--bias", "in.safetensors#bias0", "--bias", "in.safetensors#bias1", "--out",
                     "x.safetensors", "--out", "y.safetensors", "--transpose-b", "--dtype", "bf16", "--ranks", 3)
        for i, out in enumerate(("x.safetensors", "y.safetensors")):
            self.assert_near(out, multiplied(a, b[i], "bf16", 3, False, bias=bias[i][2]))

    def test_npy_files(self):
        """In C order, and in Fortran order, where the transposed view is row-major again."""
        a, b = random_tensor("f32", [4, 6], 6), random_tensor("f32", [5, 6], 7)
        cli_tool.write_npy(self.folder / "a.npy", a[1], a[2])
        column_by_column = [b[2][n * 6 + k] for k in range(6) for n in range(5)]
        (self.folder / "c.npy").write_bytes(cli_tool.npy_bytes(b[1], b[2]))
        (self.folder / "f.npy").write_bytes(cli_tool.npy_bytes(b[1], column_by_column, fortran=True))
        for name in ("c.npy", "f.npy"):
            for op in ("all_gather_matmul", "matmul_reduce_scatter"):
                with self.subTest(name=name, op=op):
                    self.succeed("run", op, "--a", "a.npy", "--b", name, "--transpose-b", "--out", "out.safetensors",
                                 "--ranks", 2)
                    self.assert_near("out.safetensors", multiplied(a, b, "f32", 2, op == "matmul_reduce_scatter"))

    def test_the_printed_lines_do_the_same_again(self):
        a, b = random_tensor("f32", [4, 6], 8), random_tensor("f32", [5, 6], 9)
        write_tensors(self.folder / "in.safetensors", {"a": a, "b#1": b})
        for op in ("all_gather_matmul", "matmul_reduce_scatter"):
            text = self.succeed("run", op, "--a", "in.safetensors#a", "--b", "in.safetensors#b#1", "--transpose-b",
                                "--out", "out.safetensors", "--ranks", 2)
            first = (self.folder / "out.safetensors").read_bytes()
            (self.folder / "out.safetensors").unlink()
            lines = text.splitlines()
            again = shlex.split(next(line for line in lines if line.startswith("again: "))[len("again: ") :])
            self.assertEqual(again[0], "tandem")
            self.assertIn("--transpose-b", again)
            self.succeed(*again[1:])
            self.assertEqual((self.folder / "out.safetensors").read_bytes(), first)
            problem = next(line for line in lines if "--problem" in line).split("--problem ")[1]
            self.assertIn(",b=column", problem)
            generated = self.succeed("run", "--problem", problem, "--out", "generated.safetensors")
            self.assertIn(f"--problem {problem}", generated)
            self.assertEqual(cli_tool.read_safetensors(self.folder / "generated.safetensors")["out"][1], [4, 5])
            self.succeed("check", "--problem", problem)


class Names(InFolder):
    """The rule of docs/cli.md: which part of PATH#NAME is the path."""

    def setUp(self):
        super().setUp()
        cli_tool.write_npy(self.folder / "a.npy", [1, 1], [1.0])

    def put(self, path, values):
        """A file of [1, 1] tensors: name -> value."""
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".npy":
            cli_tool.write_npy(path, [1, 1], [values])
        else:
            write_tensors(path, {name: ("f32", [1, 1], [value]) for name, value in values.items()})

    def assert_value(self, spec, value):
        self.succeed("run", "all_gather_matmul", "--a", "a.npy", "--b", spec, "--out", "out.npy", "--ranks", 1)
        self.assertEqual(cli_tool.read_npy(self.folder / "out.npy")[1], [value], spec)

    def test_names_with_a_hash(self):
        self.put("w.safetensors", {"w#1": 1, "#": 2, "##": 3, "a#b#c": 4, "x.safetensors#y": 5, "z.npy": 6, " ": 7, "w": 8})
        for name, value in (("w#1", 1), ("#", 2), ("##", 3), ("a#b#c", 4), ("x.safetensors#y", 5), ("z.npy", 6), (" ", 7),
                            ("w", 8)):
            self.assert_value(f"w.safetensors#{name}", value)

    def test_paths_with_a_hash(self):
        self.put("run#1/w.safetensors", {"x": 1, "x#y": 2})
        self.put("run#1/w#2.safetensors", {"x": 3})
        self.put("run#1/b#.npy", 4)
        self.put("a.safetensors#b.safetensors", {"x": 5, "": 6})
        self.put("x.npy#1/y.npy", 7)
        self.put("x.npy/nothing.txt", {})
        self.put("#.safetensors", {"x": 8})
        self.put("ckpt#1/model.safetensors", {"x": 9, "x#y": 10})
        self.put("ckpt/readme.safetensors", {"1#x": 11})
        for spec, value in (
            ("run#1/w.safetensors#x", 1), ("run#1/w.safetensors#x#y", 2), ("run#1/w#2.safetensors", 3),
            ("run#1/w#2.safetensors#x", 3), ("run#1/b#.npy", 4), ("a.safetensors#b.safetensors#x", 5),
            ("x.npy#1/y.npy", 7), ("#.safetensors", 8), ("#.safetensors#x", 8), ("ckpt#1#x", 9), ("ckpt#1#x#y", 10),
            ("ckpt#1/#x", 9), ("ckpt/#1#x", 11),
        ):
            self.assert_value(spec, value)

    def test_what_wins_where_both_are_there(self):
        # Of files the shorter path; a file before a folder; of folders the longer path.
        self.put("a.safetensors", {"b.safetensors#x": 1, "b.safetensors": 2})
        self.put("a.safetensors#b.safetensors", {"x": 3})
        self.assert_value("a.safetensors#b.safetensors#x", 1)
        self.assert_value("a.safetensors#b.safetensors", 2)
        (self.folder / "other.safetensors").symlink_to("a.safetensors#b.safetensors")
        self.assert_value("other.safetensors#x", 3)
        self.put("m/model.safetensors", {"w.safetensors": 4, "1#x": 5})
        self.put("m#1/model.safetensors", {"x": 6})
        self.assert_value("m#w.safetensors", 4)
        self.put("m#w.safetensors", {"x": 7})
        self.assert_value("m#w.safetensors", 7)
        self.assert_value("m#1#x", 6)


class Index(InFolder):
    def test_parts_that_nobody_asks_for_may_be_missing(self):
        a, b = random_tensor("bf16", [3, 4], 1), random_tensor("bf16", [5, 4], 2)
        os.mkdir(self.folder / "model")
        write_tensors(self.folder / "a.safetensors", {"a": a})
        write_tensors(self.folder / "model/1.safetensors", {"layers.0.up#1": b})
        index = {"metadata": {"total_size": 40, "x": [None]},
                 "weight_map": {"layers.0.up#1": "1.safetensors", "layers.0.down": "2.safetensors"}}
        (self.folder / "model/model.safetensors.index.json").write_text(json.dumps(index))
        for path in ("model", "model/", "model/model.safetensors.index.json", "model/1.safetensors"):
            self.succeed("run", "all_gather_matmul", "--a", "a.safetensors", "--b", f"{path}#layers.0.up#1",
                         "--transpose-b", "--out", "out.safetensors", "--ranks", 2)
            self.assert_near("out.safetensors", multiplied(a, b, "bf16", 2, False))


class Guide(InFolder):
    """Every command of the guide, on a model of the same structure whose sizes are small."""

    HIDDEN, INTERMEDIATE, KV, VOCABULARY, TOKENS = 16, 24, 8, 20, 6

    def weights(self):
        hidden, intermediate, kv = self.HIDDEN, self.INTERMEDIATE, self.KV
        shapes = {"model.embed_tokens.weight": [self.VOCABULARY, hidden]}
        for layer in range(2):
            parts = {"input_layernorm": [hidden], "mlp.down_proj": [hidden, intermediate],
                     "mlp.gate_proj": [intermediate, hidden], "mlp.up_proj": [intermediate, hidden],
                     "post_attention_layernorm": [hidden], "self_attn.k_proj": [kv, hidden],
                     "self_attn.o_proj": [hidden, hidden], "self_attn.q_proj": [hidden, hidden],
                     "self_attn.v_proj": [kv, hidden]}
            shapes |= {f"model.layers.{layer}.{part}.weight": sizes for part, sizes in parts.items()}
        shapes |= {"model.norm.weight": [hidden], "lm_head.weight": [self.VOCABULARY, hidden]}
        return {name: random_tensor("bf16", sizes, seed) for seed, (name, sizes) in enumerate(shapes.items(), 100)}

    def write_model(self, folder, weights):
        os.mkdir(folder)
        names = list(weights)
        parts = 4
        weight_map = {}
        for part in range(parts):
            file = f"model-{part + 1:05}-of-{parts:05}.safetensors"
            mine = names[part * len(names) // parts : (part + 1) * len(names) // parts]
            header = {"__metadata__": {"format": "pt"}}
            data = b""
            for name in mine:
                content = packed(weights[name][2], "bf16")
                header[name] = {"dtype": "BF16", "shape": weights[name][1],
                                "data_offsets": [len(data), len(data) + len(content)]}
                data += content
            text = json.dumps(header).encode()
            text += b" " * (-len(text) % 8)
            (folder / file).write_bytes(struct.pack("<Q", len(text)) + text + data)
            weight_map |= {name: file for name in mine}
        size = sum(2 * len(values) for _, _, values in weights.values())
        index = {"metadata": {"total_size": size}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))

    def test_every_command(self):
        weights = self.weights()
        self.write_model(self.folder / "Meta-Llama-3-8B", weights)
        inputs = {"x": random_tensor("bf16", [self.TOKENS, self.HIDDEN], 1),
                  "h": random_tensor("bf16", [self.TOKENS, self.INTERMEDIATE], 2)}
        for name, tensor in inputs.items():
            write_tensors(self.folder / f"{name}.safetensors", {name: tensor})
        text = GUIDE.read_text().replace("\\\n", " ")
        commands = [shlex.split(line[2:]) for line in text.splitlines() if line.startswith("$ tandem run")]
        self.assertGreaterEqual(len(commands), 6)
        for words in commands:
            with self.subTest(" ".join(words)):
                self.succeed(*words[1:])
                value_of = lambda flag: [words[i + 1] for i, word in enumerate(words) if word == flag]
                ranks = int(value_of("--ranks")[0])
                scatters = words[2] == "matmul_reduce_scatter"
                a = inputs[value_of("--a")[0].split("#")[1]]
                self.assertIn("--transpose-b", words)
                for spec, out in zip(value_of("--b"), value_of("--out"), strict=True):
                    expected = multiplied(a, weights[spec.split("#")[1]], "bf16", ranks, scatters)
                    self.assert_near(out, expected)


if __name__ == "__main__":
    cli_tool.main("__main__")
