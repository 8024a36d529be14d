"""tandem tune: what it measures is in the table, auto takes it from there, and a table that cannot be used is passed over."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool

SIZES = ["--m", 64, "--n", 24, "--k", 48, "--dtype", "f32", "--ranks", 3, "--iterations", 2, "--warmup", 1]
TIME = r"\d+(?:\.\d+)? (?:us|ms|s)"
PROBLEM = "all_gather_matmul,a=64x48,n=72,dtype=f32,dim=0,ranks=3,algorithm=auto,seed=7"


class Tune(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="cli_tune_")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.tables = self.folder / "tables"
        self.env = {"TANDEM_TUNE_FOLDER": str(self.tables)}

    def succeed(self, *arguments, env=None):
        done = cli_tool.run(*arguments, env=self.env if env is None else env)
        self.assertEqual(done.returncode, 0, f"tandem {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
        return done

    def run_auto(self, env=None):
        return self.succeed("run", "--problem", PROBLEM, "--out", self.folder / "o.npy", "--explain", env=env)

    def change_times(self, **us):
        """Another result of the measurement, so that it does not depend on this machine."""
        path = next(self.tables.glob("*.json"))
        table = json.loads(path.read_text())
        for row in table["rows"]:
            row["us"] = us
        path.write_text(json.dumps(table))

    def test_scaled_ops_are_kept_by_scale_mode(self):
        sizes = ["--m", 32, "--n", 16, "--k", 200, "--dtype", "f8e4m3", "--ranks", 2, "--iterations", 1, "--warmup", 0]
        self.succeed("tune", "all_gather_matmul", *sizes, "--scales", "tensor,row,block")
        self.succeed("tune", "matmul_reduce_scatter", *sizes, "--scales", "tensor,row")
        table = json.loads(next(self.tables.glob("*.json")).read_text())
        self.assertEqual(sorted((row["op"], row["layout"]) for row in table["rows"]),
                         [("all_gather_scaled_matmul", f"rows, {mode}")
                          for mode in ("blockwise_sharded", "rowwise_sharded", "tensorwise")] +
                         [("scaled_matmul_reduce_scatter", f"rows, bf16 partials, scaled {mode}")
                          for mode in ("as a whole", "by rows")])

    def test_rows_are_kept_and_looked_up(self):
        text = self.succeed("tune", *SIZES).stdout
        self.assertRegex(text.splitlines()[-1], r"^# \S+\.json: 3 rows taken in$")
        (path,) = self.tables.glob("*.json")
        table = json.loads(path.read_text())
        self.assertEqual([row["op"] for row in table["rows"]], ["all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce"])
        for row in table["rows"]:
            self.assertEqual((row["m"], row["n"], row["k"], row["dtype"], row["world"], row["link"]),
                             (64, 24, 48, "f32", 3, "shared memory"))
            self.assertEqual(set(row["us"]), {"serial", "pipelined", "native"})
            self.assertGreater(min(row["us"].values()), 0)
            self.assertIn("tandem tune --m 64", row["command"])
        self.change_times(serial=500.0, pipelined=400.0)
        text = self.run_auto().stdout
        self.assertIn("algorithm pipelined (measured 400 us; serial 500 us)", text)
        self.assertRegex(text, r"(?m)^#   serial +- +500 us$")
        self.assertRegex(text, r"(?m)^#   native +- +-( |$)")
        scatter = self.succeed("run", "--problem", PROBLEM.replace("all_gather_matmul", "matmul_reduce_scatter"),
                               "--out", self.folder / "o.npy", "--explain").stdout
        self.assertRegex(scatter, rf"(?m)^#   native +(-|{TIME}) ")
        self.change_times(serial=300.0, pipelined=400.0)
        self.assertIn("algorithm serial (measured 300 us; pipelined 400 us)", self.run_auto().stdout)

    def test_without_a_table_the_model_decides_and_says_so(self):
        text = self.run_auto().stdout
        self.assertRegex(text, rf"algorithm (serial|pipelined|native) \(predicted {TIME}; \w+ {TIME}, \w+ {TIME}")
        self.assertRegex(text, rf"(?m)^#   pipelined +{TIME} +-( |$)")
        self.assertEqual(list(self.tables.glob("*.json")), [])

    def test_speeds_are_measured_once(self):
        self.run_auto()
        (path,) = (self.tables / "rates").glob("*.json")
        text = path.read_text()
        self.assertIn("mm_f32", text)
        self.run_auto()
        self.assertEqual(path.read_text(), text)
        path.write_text(text[:60])
        done = self.run_auto()
        warnings = [line for line in done.stderr.splitlines() if path.name in line]
        self.assertEqual(len(warnings), 1, done.stderr)
        self.assertIn("mm_f32", path.read_text())

    def test_speeds_may_be_given(self):
        given = {"TANDEM_RATES": "mm=0.001,pack=1,copy=1,sum=1", "TANDEM_TUNE_FOLDER": str(self.tables)}
        first = self.run_auto(given).stdout
        self.assertRegex(first, r"\(predicted \d+(\.\d+)? ms; ")  # 442 kflops at one a microsecond
        self.assertEqual(self.run_auto(given).stdout, first)
        self.assertFalse(self.tables.exists())
        done = cli_tool.run("run", "--problem", PROBLEM, "--out", self.folder / "o.npy", env={"TANDEM_RATES": "mm=fast"})
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("TANDEM_RATES: 'mm=fast': need name=speed", done.stderr)
        self.assertIn("TANDEM_RATES = copy=6\n", cli_tool.run("doctor", env={"TANDEM_RATES": "copy=6"}).stdout)

    def test_other_links_and_sizes_have_rows_of_their_own(self):
        self.succeed("tune", "all_gather_matmul", *SIZES, "--link-delay-us", 300)
        self.assertIn("predicted", self.run_auto().stdout)
        self.assertIn("measured", self.run_auto({**self.env, "TANDEM_LINK_DELAY_US": "300"}).stdout)
        self.succeed("tune", "all_gather_matmul", *SIZES)
        (path,) = self.tables.glob("*.json")
        self.assertEqual([row["link"] for row in json.loads(path.read_text())["rows"]],
                         ["shared memory + 300 us", "shared memory"])

    def test_a_table_that_cannot_be_used_is_named_and_passed_over(self):
        self.succeed("tune", "all_gather_matmul", *SIZES)
        (path,) = self.tables.glob("*.json")
        path.write_text(path.read_text()[:100])
        done = self.run_auto()
        self.assertIn("predicted", done.stdout)
        warnings = [line for line in done.stderr.splitlines() if path.name in line]
        self.assertEqual(len(warnings), 1, done.stderr)
        text = self.succeed("tune", "all_gather_matmul", *SIZES).stdout
        self.assertIn("is not used: byte 100: no JSON, found the end of the text", text)
        self.assertIn("measured", self.run_auto().stdout)

    def test_bad_flags(self):
        for arguments, code, piece in (
            (["tune"], 2, "need --m, --n and --k, or --preset"),
            (["tune", "mm", *SIZES], 2, "unknown op 'mm'"),
            (["tune", *SIZES[:-4], "--iterations", 0], 2, "need at least 1 and 0"),
        ):
            done = cli_tool.run(*arguments, env=self.env)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            self.assertIn(piece, done.stderr)
        done = cli_tool.run("tune", *SIZES, env={"TANDEM_TUNE_FOLDER": ""})
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("no folder for the table", done.stderr)
        blocked = self.folder / "file"
        blocked.write_text("")
        done = cli_tool.run("tune", "all_gather_matmul", *SIZES, "--folder", blocked / "tables")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(str(blocked), done.stderr)
        self.assertEqual(done.stdout, "", "it measured what could not be kept")

    def test_a_folder_may_have_any_name(self):
        tables = os.fsencode(self.folder) + b"/tables\xff"
        command = [cli_tool.TOOL, "tune", "all_gather_matmul", *map(str, SIZES), "--folder", tables]
        done = subprocess.run(command, env=cli_tool.environment_with({}), capture_output=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        (name,) = {name for name in os.listdir(tables) if name.endswith(b".json")}
        with open(os.path.join(tables, name), encoding="utf-8") as file:
            (row,) = json.load(file)["rows"]
        self.assertIn("/tables\ufffd", row["command"])


if __name__ == "__main__":
    cli_tool.main(__name__)
