"""tandem program lower and run: what is printed, the result of every form, and what is said of wrong flags."""

import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool

PROGRAMS = pathlib.Path(__file__).resolve().parent / "host_programs"
FIXED = ["--workers-wait", "--single-select"]

# golden file -> flags
LOWERED = {
    "gather_workers_wait": FIXED,
    "gather_joining_loop": [*FIXED, "--joining-loop"],
    "gather_stream_axis": ["--stream-axis", "--single-select"],
    "ring": [*FIXED, "--form", "ring"],
    "ring_offset_by_rank": [*FIXED, "--form", "ring", "--offset-by-rank"],
    "scatter": [*FIXED, "--form", "scatter"],
    "linear": [*FIXED, "--op", "linear", "--bias", "--dtype", "bf16"],
    "linear_without_bias": [*FIXED, "--op", "linear", "--dtype", "f16"],
}

SIZES = ["--m", "64", "--n", "24", "--k", "32"]
WRONG = [
    (["lower", "--ranks", "0"], ["--ranks", "0"]),
    (["lower", "--form", "star"], ["--form", "star"]),
    (["lower", "--bias"], ["--bias", "linear"]),
    (["lower", "--offset-by-rank"], ["--offset-by-rank", "ring"]),
    (["lower", "--dtype", "i32"], ["i32"]),
    (["lower", "--m", "9", "--n", "2", "--k", "2"], ["--m 9", "multiple", "--s 1", "8 ranks"]),
    (["lower", *SIZES, "--unroll", "1"], ["--unroll", "--workers-wait"]),
    (["lower", *SIZES, "--unroll", "8", "--workers-wait"], ["--unroll 8", "0 to 7"]),
    (["run", "--m", "8", "--ranks", "2"], ["missing", "--k"]),
    (["run", *SIZES, "--s", "3", "--ranks", "2"], ["--m 64", "--s 3", "2 ranks"]),
    (["run", *SIZES, "--s", "0", "--ranks", "2"], ["--s 0"]),
    (["run", *SIZES, "--streams", "16", "--ranks", "2"], ["--streams 16", "1 to 15"]),
    (["run", *SIZES, "--streams", "0", "--ranks", "2"], ["--streams 0", "1 to 15"]),
    (["run", "--form", "scatter", "--m", "8", "--n", "2", "--k", "3", "--ranks", "2"], ["--k 3", "2 ranks"]),
    ([], ["subcommand"]),
]


def program(*arguments):
    return cli_tool.run("program", *arguments)


class ProgramLower(unittest.TestCase):
    def test_text_is_the_golden_one(self):
        for name, flags in LOWERED.items():
            with self.subTest(name):
                done = program("lower", "--ranks", "2", "--dump", *flags)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(done.stdout, (PROGRAMS / f"{name}.txt").read_text())

    def test_without_flags_it_is_the_first_generation(self):
        # All numbers are dropped here; which value is which, another test compares.
        without_numbers = lambda text: re.sub(r"\d+", "#", text)
        published = (PROGRAMS / "gather_first_generation.txt").read_text()
        done = program("lower", "--dump")
        self.assertEqual(without_numbers(done.stdout), without_numbers(published))

    def test_a_rank_s_steps(self):
        done = program(
            "lower", "--ranks", "2", "--workers-wait", "--s", "2", *SIZES, "--streams", "2", "--unroll", "1", "--dump"
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        steps = done.stdout
        for lane in ("s1", "s2"):
            for step in (f"cur > {lane}", f"{lane}: barrier", f"{lane}: get", f"{lane} > cur"):
                self.assertIn(step, steps)


class ProgramRun(unittest.TestCase):
    def test_every_form_is_the_product(self):
        for form in (["gather"], ["ring"], ["ring", "--offset-by-rank"], ["scatter"], ["gather", "--op", "linear", "--bias"]):
            for ranks, s, dtype in (("1", "4", "f32"), ("2", "8", "bf16"), ("4", "1", "f16")):
                with self.subTest(form=form, ranks=ranks):
                    done = program("run", "--form", *form, *SIZES, "--ranks", ranks, "--s", s, "--dtype", dtype)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertRegex(done.stdout, r"\n[1-9]\d* elements compared with float64, 0 wrong\n")
                    self.assertIn("workers wait", done.stdout)

    def test_the_dump_is_device_0_s_and_what_ran(self):
        done = program("run", *SIZES, "--ranks", "2", "--dump", "--single-select")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("%HostIrContainer {"), 1)
        self.assertIn((PROGRAMS / "gather_workers_wait.txt").read_text(), done.stdout)


class WrongFlags(unittest.TestCase):
    def test_each_is_one_line_and_exit_2(self):
        for arguments, words in WRONG:
            with self.subTest(" ".join(arguments)):
                done = program(*arguments)
                shown = f"stdout: {done.stdout}\nstderr: {done.stderr}"
                self.assertEqual(done.returncode, 2, shown)
                self.assertEqual(len(done.stderr.splitlines()), 1, shown)
                for word in words:
                    self.assertIn(word, done.stderr, shown)


if __name__ == "__main__":
    cli_tool.main("__main__")
