"""Signals: those that the caller ignores stay ignored, the others end whatever the tool waits for, and the last line says
truly what was kept."""

import fcntl
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
PROGRAM = GOLDEN / "programs" / "mlp_tp2.txt"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SLOW = {"TANDEM_LINK_DELAY_US": "2000000"}
GATHER = ["all_gather_matmul", "--m", "32", "--n", "32", "--k", "32", "--dtype", "f32", "--ranks", "2", "--iterations", "1",
          "--warmup", "0"]


def awaits_signals(process):
    """Whether it has come as far as blocking SIGINT, for the thread that waits for it."""
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as status:
        (blocked,) = (line.split()[1] for line in status if line.startswith("SigBlk:"))
    return int(blocked, 16) >> (signal.SIGINT - 1) & 1 == 1


class Signals(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="cli_signals_")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        cli_tool.write_npy(self.folder / "a.npy", [64, 64], [0.5] * 4096)
        cli_tool.write_npy(self.folder / "b.npy", [64, 64], [0.5] * 4096)
        self.run_line = ["run", "all_gather_matmul", "--a", "a.npy", "--b", "b.npy", "--out", "o.npy", "--ranks", "2",
                         "--algorithm", "pipelined"]

    def start(self, *arguments, env=None, ignored=(), limit=None, **streams):
        """The tool, with the signals as a shell leaves them but for those that are ignored."""

        def prepare():
            for number in (*ENDING, signal.SIGCHLD, signal.SIGXFSZ, signal.SIGPIPE):
                signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        process = subprocess.Popen([cli_tool.TOOL, *map(str, arguments)], cwd=self.folder, text=True, preexec_fn=prepare,
                                   env=cli_tool.environment_with(env), **streams)
        self.addCleanup(self.stop, process)
        return process

    @staticmethod
    def stop(process):
        if process.returncode is None:
            process.kill()
            process.communicate()

    def ended(self, process, seconds=60):
        try:
            out, error = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.fail(f"still there after {seconds} s: {' '.join(process.args)}")
        return process.returncode, out or "", error or ""

    def waits_in(self, process, function):
        """Until the tool's first thread waits in a function of the kernel, or is in some wait where that cannot be read."""
        def look():
            try:
                state = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
                where = pathlib.Path(f"/proc/{process.pid}/wchan").read_text()
                return state in "SD" and (where in ("", "0") or re.search(function, where))
            except OSError:
                return False
        return cli_tool.wait_until(look, 10)

    # ---- what the caller ignores

    def test_signals_that_the_caller_ignores_change_nothing(self):
        for number in ENDING:
            for command in (self.run_line, ["demo", "--scale", "1/32", "--seconds", "0.2", "--ranks", "2"]):
                with self.subTest(number=number, command=command[0]):
                    process = self.start(*command, env=SLOW if command[0] == "run" else None, ignored=(number,))
                    self.assertTrue(cli_tool.wait_until(lambda: len(cli_tool.ranks_of(process.pid)) == 2 or process.poll() is not None))
                    process.send_signal(number)
                    code, out, error = self.ended(process)
                    self.assertEqual((code, error), (0, ""), out)

    def test_an_ignored_end_of_children_changes_nothing(self):
        for command in (self.run_line, ["doctor"], ["bench", *GATHER], ["check", "all_gather_matmul", "--ranks", "2", "--dtype", "f32"]):
            with self.subTest(command[0]):
                code, out, error = self.ended(self.start(*command, ignored=(signal.SIGCHLD,)))
                self.assertEqual((code, error), (0, ""), out)

    # ---- limits of files

    def test_a_limit_of_files_is_an_error_and_no_signal(self):
        lines = [(self.run_line, "o.npy"), (["bench", *GATHER, "--json", "rows.json"], "rows.json"),
                 (["graph", "fuse", PROGRAM, "--out", "fused.json"], "fused.json"),
                 (["graph", "run", PROGRAM, "--json", "run.json"], "run.json"),
                 (["demo", "--scale", "1/32", "--seconds", "0.2", "--ranks", "2", "--json", "demo.json"], "demo.json")]
        for ignored in ((), (signal.SIGXFSZ,)):
            for line, target in lines:
                for limit in (0, 1, 100, 512, 4096, 8192, 32768, 1 << 17):
                    with self.subTest(line=line[0], limit=limit, ignored=ignored):
                        code, out, error = self.ended(self.start(*line, ignored=ignored, limit=limit))
                        if code == 0:
                            continue
                        self.assertIn(code, (1, 2), error)
                        self.assertEqual(len(error.splitlines()), 1, error)
                        self.assertRegex(error, "file size limit|File too large")
                        self.assertFalse((self.folder / target).exists(), error)
                (self.folder / target).unlink(missing_ok=True)

    # ---- what the tool waits for

    def ends_by_each_signal(self, begin, wait, kept="nothing was written"):
        for number in ENDING:
            with self.subTest(number=number):
                process = begin()
                self.assertTrue(wait(process), f"it does not wait: {process.poll()}")
                process.send_signal(number)
                code, out, error = self.ended(process, 20)
                self.assertEqual(code, 128 + number, out + error)
                if process.stderr is not None:
                    self.assertRegex(error, rf"^tandem: interrupted by signal {int(number)} \([^)]+\); {kept}\n$")

    def fill(self, num_free_pages=0):
        """A pipe that takes little more or nothing, and that nobody empties."""
        read_end, write_end = os.pipe()
        self.addCleanup(os.close, read_end)
        os.set_blocking(write_end, False)
        for size in (65536, 4096, 1):
            try:
                while True:
                    os.write(write_end, b"x" * size)
            except BlockingIOError:
                pass
        os.set_blocking(write_end, True)
        for _ in range(num_free_pages):
            os.read(read_end, 4096)
        self.addCleanup(os.close, write_end)
        return write_end

    def test_full_pipes(self):
        """Before, during and after a job, and of commands without one."""
        for line in (["graph", "show", PROGRAM], ["graph", "fuse", PROGRAM], ["program", "lower", "--form", "ring"],
                     self.run_line, ["demo", "--scale", "1/32", "--seconds", "0.2", "--ranks", "2"], ["doctor"],
                     ["bench", "peaks", "--iterations", "1", "--warmup", "0"], ["bench", *GATHER],
                     ["tune", *GATHER, "--folder", "t"],
                     ["check", "all_gather_matmul", "--ranks", "2", "--dtype", "f32"]):
            with self.subTest(line[0]):
                out = self.fill()
                self.ends_by_each_signal(lambda: self.start(*line, stdout=out), lambda p: self.waits_in(p, "pipe"))

    def test_a_pipe_that_is_full_after_the_first_rows(self):
        many = ["all_gather_matmul", "--m", ",".join(["32"] * 100), *GATHER[3:]]
        for line, kept, files in ((["bench", *many], "nothing was written", None),
                                  (["bench", *many, "--json", "rows.json"], r"kept: \d+ rows? in rows\.json", "rows.json"),
                                  (["tune", *many, "--folder", "t"], r"kept: \d+ rows? in t/\S+\.json", "t/*.json")):
            def written():
                return [file for file in self.folder.glob(files) if file.stat().st_size > 0] if files else [self.folder]

            def begin():
                for file in written() if files else []:
                    file.unlink()
                return self.start(*line, stdout=self.fill(1))

            # A process waits in a pipe for a moment while it starts its ranks, too.
            with self.subTest(line[0]):
                self.ends_by_each_signal(begin, lambda p: cli_tool.wait_until(written, 20) and self.waits_in(p, "pipe"), kept)

    def test_full_pipes_also_of_the_errors(self):
        out = self.fill()
        for line in (["graph", "show", PROGRAM], self.run_line):
            self.ends_by_each_signal(lambda: self.start(*line, stdout=out, stderr=out), lambda p: self.waits_in(p, "pipe"))

    def test_locks_of_rows(self):
        rows = self.folder / "rows.json"
        rows.write_text('{"old":1}\n')
        for line in (["bench", *GATHER], ["demo", "--scale", "1/32", "--seconds", "0.2", "--ranks", "2"],
                     ["bench", "peaks", "--iterations", "1", "--warmup", "0"]):
            with self.subTest(line[:2]), rows.open() as held:
                fcntl.flock(held, fcntl.LOCK_EX)
                begin = lambda: self.start(*line, "--json", "rows.json", stdout=subprocess.DEVNULL)
                in_wait = lambda p: self.waits_in(p, "nanosleep") and cli_tool.wait_until(lambda: not cli_tool.ranks_of(p.pid), 10)
                self.ends_by_each_signal(begin, in_wait, r"(nothing was written|rows\.json was being written, and may be there)")
        self.assertEqual(rows.read_text(), '{"old":1}\n')

    def test_a_lock_of_rows_that_stays_is_an_error(self):
        rows = self.folder / "rows.json"
        rows.write_text('{"old":1}\n')
        with rows.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            code, _, error = self.ended(self.start("bench", *GATHER, "--json", "rows.json"))
        self.assertEqual(code, 1, error)
        self.assertEqual(error, "tandem: --json rows.json: another program has had it locked for 10000 ms\n")
        self.assertEqual(rows.read_text(), '{"old":1}\n')

    def test_a_library_that_is_a_pipe(self):
        os.mkfifo(self.folder / "blas.so")
        line = ["bench", "mm", "--m", "8", "--n", "8", "--k", "8", "--dtype", "f32", "--peers", "openblas=./blas.so"]
        self.ends_by_each_signal(lambda: self.start(*line), lambda p: self.waits_in(p, "fifo_open|wait_for_partner"))

    def test_a_stopped_job(self):
        def begin():
            process = self.start(*self.run_line, env=SLOW)
            self.assertTrue(cli_tool.wait_until(lambda: len(cli_tool.ranks_of(process.pid)) == 2))
            for rank in cli_tool.ranks_of(process.pid):
                os.kill(rank, signal.SIGSTOP)
            return process

        self.ends_by_each_signal(begin, lambda p: True)
        self.assertEqual(sorted(os.listdir(self.folder)), ["a.npy", "b.npy"])

    def test_a_stopped_job_is_said_once_and_goes_on(self):
        process = self.start(*self.run_line, env=SLOW)
        self.assertTrue(cli_tool.wait_until(lambda: len(cli_tool.ranks_of(process.pid)) == 2))
        ranks = cli_tool.ranks_of(process.pid)
        for rank in ranks:
            os.kill(rank, signal.SIGSTOP)
        line = process.stderr.readline()
        for rank in ranks:
            os.kill(rank, signal.SIGCONT)
        self.assertEqual(line, f"tandem: all ranks are stopped; they go on after: kill -CONT {ranks[0]} {ranks[1]}\n")
        code, out, error = self.ended(process)
        self.assertEqual((code, error), (0, ""), out)

    def test_a_signal_to_all_of_a_terminal(self):
        """The ranks may be gone before the launcher looks."""
        for number in ENDING:
            for first in ("ranks", "launcher"):
                with self.subTest(number=number, first=first):
                    process = self.start(*self.run_line, env=SLOW)
                    self.assertTrue(cli_tool.wait_until(lambda: len(cli_tool.ranks_of(process.pid)) == 2))
                    time.sleep(0.3)
                    pids = [*cli_tool.ranks_of(process.pid), process.pid]
                    for pid in pids if first == "ranks" else reversed(pids):
                        cli_tool.signal_if_there(pid, number)
                    code, _, error = self.ended(process)
                    self.assertEqual(code, 128 + number, error)
                    self.assertIn("interrupted by signal", error)

    def test_nobody_who_reads(self):
        for line in (["demo", "--scale", "1/32", "--seconds", "0.2", "--ranks", "2"], ["graph", "show", PROGRAM]):
            with self.subTest(line[0]):
                read_end, write_end = os.pipe()
                os.close(read_end)
                process = self.start(*line, stdout=write_end)
                os.close(write_end)
                code, _, error = self.ended(process)
                self.assertEqual((code, error), (-signal.SIGPIPE, ""))

    # ---- what the last line says

    def kept(self, error):
        """name -> rows that were kept, or None of a whole file, as the last line says."""
        (words,) = re.findall(r"^tandem: interrupted by signal \d+ \([^)]+\); (.*)$", error)
        if words == "nothing was written":
            return {}
        self.assertTrue(words.startswith("kept: "), words)
        found = {}
        for part in words[len("kept: "):].split(", "):
            row = re.fullmatch(r"(\d+) rows? in (.+)", part)
            found[row[2] if row else part] = int(row[1]) if row else None
        return found

    def test_rows_that_were_kept_are_counted(self):
        many = ["all_gather_matmul", "--m", "32,48,64,96,128,192,256,384,512,768,1024", *GATHER[3:]]
        for kind in ("bench", "tune"):
            for wanted in (0, 1, 3):
                with self.subTest(kind=kind, wanted=wanted):
                    where = self.folder / f"{kind}{wanted}"
                    flag = ["--json", where] if kind == "bench" else ["--folder", where]
                    process = self.start(kind, *many, *flag, stdout=subprocess.DEVNULL)
                    rows = lambda: self.num_rows(where)
                    self.assertTrue(cli_tool.wait_until(
                        lambda: process.poll() is not None or (rows() >= wanted and awaits_signals(process))))
                    process.send_signal(signal.SIGINT)
                    code, _, error = self.ended(process)
                    self.assertEqual(code, 130, error)
                    self.assertEqual(sum(self.kept(error).values()), rows(), error)
                    if rows() == 0:
                        self.assertFalse(where.exists() and not any(where.glob("rates/*")), "it is empty")

    @staticmethod
    def num_rows(where):
        if where.is_dir():
            return sum(len(json.loads(path.read_text())["rows"]) for path in where.glob("*.json"))
        return len(where.read_text().splitlines()) if where.exists() else 0

    def test_the_last_line_is_true_whenever_the_signal_comes(self):
        line = ["run", "all_gather_matmul", "--a", "a.npy", "--b", "b.npy", "--b", "b.npy", "--out", "o.npy", "--out", "p.npy",
                "--ranks", "2"]
        begin = time.monotonic()
        self.assertEqual(self.ended(self.start(*line))[0], 0)
        whole = time.monotonic() - begin
        for i in range(40):
            for name in ("o.npy", "p.npy"):
                (self.folder / name).unlink(missing_ok=True)
            process = self.start(*line)
            time.sleep(whole * 1.2 * i / 40)
            process.send_signal(signal.SIGINT)
            code, _, error = self.ended(process)
            there = {name for name in ("o.npy", "p.npy") if (self.folder / name).exists()}
            if code == -signal.SIGINT:  # before it listens, or after its work
                continue
            self.assertIn(code, (0, 130), error)
            self.assertEqual(there, {"o.npy", "p.npy"} if code == 0 else set(self.kept(error)), error)

    def test_nothing_is_left_of_a_command_that_measured_nothing(self):
        for name, line in {"rows.json": ["bench", *GATHER, "--json", "rows.json"],
                           "t": ["tune", *GATHER, "--folder", "t"],
                           "demo.json": ["demo", "--scale", "1/32", "--seconds", "60", "--ranks", "2", "--json", "demo.json"],
                           "d": ["trace", *self.run_line, "--out", "d"]}.items():
            for pause in (0, 0.005, 0.02, 0.05):
                with self.subTest(name=name, pause=pause):
                    process = self.start(*line, env=SLOW)
                    time.sleep(pause)
                    process.send_signal(signal.SIGTERM)
                    code, _, error = self.ended(process)
                    self.assertIn(code, (143, -signal.SIGTERM), error)
                    there = self.folder / name
                    self.assertTrue(not there.exists() or any(there.glob("rates/*.json")), error)


if __name__ == "__main__":
    cli_tool.main("__main__")
