"""However a run ends, nothing is left: no process, no file in /dev/shm, the temporary folder or beside the target."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool

RANKS = 4
# Long enough to be met in its middle: a link so slow that the run lasts until it is ended.
LONG_RUN = {"TANDEM_LINK_DELAY_US": "2000000"}
LONG_DEMO = ["demo", "--scale", "1/32", "--seconds", "60", "--ranks", str(RANKS), "--link-delay-us", "1000000"]


class LeftBehind(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="cli_left_")
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        cli_tool.write_npy(os.path.join(self.folder, "a.npy"), [16, 8], [0.5] * 128)
        cli_tool.write_npy(os.path.join(self.folder, "b.npy"), [8, 8], [0.5] * 64)
        self.target_before = sorted(os.listdir(self.folder))
        self.left = cli_tool.LeftBehind(self)
        self.own = set()

    def start(self, kind):
        """The launcher and its ranks, in the middle of their work."""
        if kind == "demo":
            launcher = cli_tool.start(*LONG_DEMO, cwd=self.folder)
        else:
            launcher = cli_tool.start("run", "all_gather_matmul", "--a", "a.npy", "--b", "b.npy", "--out", "out.npy",
                                      "--ranks", RANKS, "--algorithm", "pipelined", cwd=self.folder, env=LONG_RUN)
        self.addCleanup(self.stop, launcher)
        self.assertTrue(cli_tool.wait_until(lambda: len(cli_tool.ranks_of(launcher.pid)) == RANKS),
                        f"no {RANKS} ranks: {cli_tool.ranks_of(launcher.pid)}")
        time.sleep(0.5)  # into the op
        self.assertIsNone(launcher.poll(), "the run ended before it could be disturbed")
        ranks = cli_tool.ranks_of(launcher.pid)
        self.own = {launcher.pid, *ranks}
        return launcher, ranks

    @staticmethod
    def stop(launcher):
        """So that a failed test leaves nothing either."""
        if launcher.returncode is None:
            launcher.kill()
            launcher.communicate()

    def nothing_is_left(self):
        gone = cli_tool.wait_until(lambda: not (cli_tool.processes() & self.own), 5)
        self.assertTrue(gone, f"still running: {cli_tool.processes() & self.own}")
        self.assertEqual(self.left.new_names(), [])
        self.assertEqual(sorted(os.listdir(self.folder)), self.target_before)

    def end(self, launcher):
        try:
            out, error = launcher.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.fail("the launcher did not end within 30 s")
        return launcher.returncode, out, error

    def test_interrupt(self):
        for kind in ("demo", "run"):
            for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
                with self.subTest(kind=kind, signal=number):
                    launcher, _ = self.start(kind)
                    launcher.send_signal(number)
                    returncode, out, error = self.end(launcher)
                    self.assertEqual(returncode, code, out + error)
                    self.assertEqual(len(error.splitlines()), 1, error)
                    self.assertIn("interrupted", error)
                    # No rank outlives its launcher, not even for a moment.
                    self.assertEqual(cli_tool.processes() & self.own, set())
                    self.nothing_is_left()

    def test_interrupt_from_a_terminal_reaches_all(self):
        launcher, ranks = self.start("demo")
        for pid in (*ranks, launcher.pid):
            cli_tool.signal_if_there(pid, signal.SIGINT)
        returncode, out, error = self.end(launcher)
        self.assertEqual(returncode, 130, out + error)
        self.assertEqual(len(error.splitlines()), 1, error)
        self.nothing_is_left()

    def test_killed_rank(self):
        for kind in ("demo", "run"):
            with self.subTest(kind=kind):
                launcher, ranks = self.start(kind)
                os.kill(ranks[2], signal.SIGKILL)
                returncode, out, error = self.end(launcher)
                self.assertEqual(returncode, 1, out + error)
                self.assertEqual(len(error.splitlines()), 1, error)
                self.assertIn("rank 2", error)
                self.nothing_is_left()

    def test_killed_launcher(self):
        for kind in ("demo", "run"):
            with self.subTest(kind=kind):
                launcher, _ = self.start(kind)
                launcher.kill()
                launcher.communicate()
                self.nothing_is_left()

    def test_all_killed_at_once(self):
        launcher, ranks = self.start("run")
        for pid in (*ranks, launcher.pid):
            cli_tool.signal_if_there(pid, signal.SIGKILL)
        launcher.communicate()
        self.nothing_is_left()

    def test_an_ordinary_run_leaves_only_its_result(self):
        done = cli_tool.run("run", "all_gather_matmul", "--a", "a.npy", "--b", "b.npy", "--out", "out.npy", "--ranks", 3,
                            cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), sorted([*self.target_before, "out.npy"]))
        os.remove(os.path.join(self.folder, "out.npy"))
        self.nothing_is_left()


if __name__ == "__main__":
    cli_tool.main("__main__")
