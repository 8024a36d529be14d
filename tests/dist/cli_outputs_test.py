"""Every output of every command, and what can be wrong with its name or its disk: refused before the work, or an error that
names the reason and leaves the file that was there."""

import itertools
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "golden" / "programs" / "mlp_tp2.txt"
NOBODY = 65534
GATHER = ["all_gather_matmul", "--m", "32", "--n", "32", "--k", "32", "--dtype", "f32", "--ranks", "2", "--iterations", "1",
          "--warmup", "0"]
ONE_CALL = ["--m", "8", "--n", "32", "--k", "32", "--iterations", "1", "--warmup", "0"]
DEMO = ["demo", "--scale", "1/32", "--seconds", "0.1", "--ranks", "2"]
MEASURED = pathlib.Path(__file__).resolve().parents[2] / "bench" / "results" / "h200_x2_native.json"
PLAN = ["plan", "--gpu", "h200", "--ranks", "2"]
A, B = ["--a", "a.npy"], ["--b", "b.npy"]


class Output:
    """A command with a flag for an output, last on its line."""

    def __init__(self, line, name, kind):
        self.line, self.name, self.kind = line, name, kind  # kind: whole, rows or folder

    def __repr__(self):
        return " ".join(map(str, self.line))

    def naming(self, path):
        return [*self.line, path]


OUTPUTS = [
    Output(["run", "all_gather_matmul", *A, *B, "--ranks", "2", "--out"], "o.npy", "whole"),
    Output(["run", "matmul_reduce_scatter", *A, *B, "--ranks", "2", "--out"], "o.safetensors", "whole"),
    Output(["run", "matmul_4bit", *A, *B, "--out"], "o.npy", "whole"),
    Output(["run", "low_contention_all_gather", *A, "--ranks", "2", "--out"], "o.npy", "whole"),
    Output(["graph", "fuse", PROGRAM, "--json"], "o.json", "whole"),
    Output(["graph", "fuse", PROGRAM, "--out"], "o.json", "whole"),
    Output(["graph", "run", PROGRAM, "--json"], "o.json", "whole"),
    Output(["bench", *GATHER, "--json"], "o.json", "rows"),
    Output(["bench", "mm", *ONE_CALL, "--dtype", "f32", "--json"], "o.json", "rows"),
    Output(["bench", "matmul_4bit", *ONE_CALL, "--json"], "o.json", "rows"),
    Output(["bench", "peaks", "--iterations", "1", "--warmup", "0", "--json"], "o.json", "rows"),
    Output(["bench", "low_contention_all_gather", "--beside", "mm", "--mib", "1", *ONE_CALL, "--dtype", "f32", "--ranks", "2",
            "--json"], "o.json", "rows"),
    Output([*DEMO, "--json"], "o.json", "rows"),
    Output(["doctor", "--json"], "o.json", "rows"),
    Output([*PLAN, "all_gather_matmul", "--shape", "64x64x64", "--json"], "o.json", "rows"),
    Output([*PLAN, "--fit", MEASURED, "--output"], "o.json", "whole"),
    Output(["tune", *GATHER, "--folder"], "o", "folder"),
    Output(["trace", "bench", *GATHER, "--out"], "o", "folder"),
    Output(["trace", *DEMO, "--out"], "o", "folder"),
    Output(["trace", "run", "all_gather_matmul", *A, *B, "--ranks", "2", "--out", "result.npy", "--out"], "o", "folder"),
]
# Flags with a value that names no output. A flag that is in neither list fails a test: say here what it is.
NO_OUTPUTS = set("""--a --b --bias --dtype --scales --a-scale --b-scale --out-dtype --algorithm --gather-dim --scatter-dim --reduce
    --problem --group-size --ranks --backend --m --n --k --preset --scale --iterations --warmup --link-delay-us --link --load-ms
    --config --peers --beside --mib --b-order --slices --seconds --form --after --seed --op --s --streams --unroll --recorder
    --gpu --machine --hosts --latency-us --shape --layers --tokens --serial-tokens --overlap --against --fit""".split())
COMMANDS = [["demo"], ["run"], ["bench"], ["check"], ["tune"], ["doctor"], ["graph", "show"], ["graph", "fuse"], ["graph", "run"],
            ["plan"], ["program", "lower"], ["program", "run"], ["trace"]]


class Outputs(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="cli_outputs_")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.folder.chmod(0o755)
        cli_tool.write_npy(self.folder / "a.npy", [64, 64], [0.5] * 4096)
        cli_tool.write_npy(self.folder / "b.npy", [64, 64], [0.5] * 4096)

    def run_tool(self, line, prepare=None):
        return subprocess.run([cli_tool.TOOL, *map(str, line)], cwd=self.folder, env=cli_tool.environment_with({}),
                              capture_output=True, text=True, timeout=120, preexec_fn=prepare)

    def refused(self, line, *words, prepare=None):
        """Before anything is done: exit 2, one line, no output."""
        before = sorted(os.listdir(self.folder))
        done = self.run_tool(line, prepare)
        shown = f"{line}\nstdout: {done.stdout}\nstderr: {done.stderr}"
        self.assertIn(done.returncode, (2,) if line[0] != "tune" else (1, 2), shown)
        self.assertEqual((len(done.stderr.splitlines()), done.stdout), (1, ""), shown)
        for word in words:
            self.assertRegex(done.stderr, word, shown)
        self.assertEqual(sorted(os.listdir(self.folder)), before, shown)

    # ---- the lists

    def help_of(self, command):
        done = cli_tool.run(*command, "--help")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_every_command_is_in_the_lists(self):
        found = []
        for name in re.findall(r"(?m)^  ([a-z-]+) +[A-Z]", self.help_of([]).split("ubcommands:")[1]):
            below = self.help_of([name]).split("ubcommands:")[1:]
            found += [[name, sub] for sub in re.findall(r"(?m)^  ([a-z]+) +[A-Z]", below[0])] if below else [[name]]
        self.assertEqual(sorted(found), sorted(COMMANDS))

    def test_every_output_is_in_the_lists(self):
        for command in COMMANDS:
            outputs = {str(output.line[-1]) for output in OUTPUTS if list(map(str, output.line[:len(command)])) == command}
            with_value = set()
            for line in self.help_of(command).splitlines():
                found = re.match(r"  (?:-\w,)?(--[\w-]+) ([A-Z]+\b|\S+:)", line)
                if found:
                    with_value.add(found[1])
            self.assertTrue(command[0] in ("graph",) or with_value, f"{command}: its help is read wrongly")
            self.assertEqual(with_value - NO_OUTPUTS, outputs, f"{command}: flags that are in no list, or are no more")

    # ---- names

    def test_good_names_pass(self):
        for output in OUTPUTS:
            with self.subTest(output):
                path = self.folder / output.name
                done = self.run_tool(output.naming(output.name))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(path.exists())
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def test_names_of_what_is_no_file_are_refused(self):
        os.mkdir(self.folder / "folder")
        for output, kind in itertools.product(OUTPUTS, ("pipe", "device", "device_link", "folder", "no_link", "round", "long")):
            path = self.folder / output.name
            ending = path.suffix
            with self.subTest(output=output, kind=kind):
                name = output.name
                if output.kind == "folder" and kind in ("folder", "no_link"):
                    continue
                if kind == "pipe":
                    os.mkfifo(path)
                elif kind == "device":
                    if ending in (".npy", ".safetensors"):
                        continue
                    name = "/dev/null"
                elif kind == "device_link":
                    path.symlink_to("/dev/null")
                elif kind == "folder":
                    path.mkdir()
                elif kind == "no_link":
                    path.symlink_to("nothing")
                elif kind == "round":
                    path.symlink_to(output.name)
                else:
                    name = "n" * 300 + ending
                self.refused(output.naming(name))
                if path.is_dir() and not path.is_symlink():
                    path.rmdir()
                elif path.is_symlink() or path.exists():
                    path.unlink()

    def test_files_in_a_folder_of_a_trace_may_be_no_pipes(self):
        for name in ("trace.json", "trace.html"):
            os.makedirs(self.folder / "o")
            os.mkfifo(self.folder / "o" / name)
            self.refused(["trace", "bench", *GATHER, "--out", "o"], name, "regular file")
            shutil.rmtree(self.folder / "o")

    def test_missing_folders_are_refused(self):
        for output in OUTPUTS:
            with self.subTest(output):
                if output.kind != "folder":
                    self.refused(output.naming(f"no/where/{output.name}"), "No such file", "make its folder")
                self.refused(output.naming(f"a.npy/{output.name}"), "Not a directory")

    def test_folders_that_cannot_be_written_are_refused(self):
        closed = self.folder / "closed"
        closed.mkdir()
        closed.chmod(0o555)
        prepare = None
        if os.geteuid() == 0:  # whom nothing is closed to
            prepare = lambda: (os.setgid(NOBODY), os.setuid(NOBODY))
        for output in OUTPUTS:
            with self.subTest(output):
                self.refused(output.naming(closed / output.name), "Permission denied", prepare=prepare)
                self.assertEqual(os.listdir(closed), [])

    def test_files_that_cannot_be_written_are_refused(self):
        """A file that is replaced may be read-only, one that is added to may not."""
        prepare = None
        if os.geteuid() == 0:
            prepare = lambda: (os.setgid(NOBODY), os.setuid(NOBODY))
        for output in OUTPUTS:
            if output.kind != "rows":
                continue
            with self.subTest(output):
                path = self.folder / output.name
                path.write_text('{"old":1}\n')
                path.chmod(0o444)
                self.refused(output.naming(output.name), "Permission denied", prepare=prepare)
                self.assertEqual(path.read_text(), '{"old":1}\n')
                path.unlink()

    def test_links_are_followed_and_stay(self):
        for output in OUTPUTS:
            if output.kind == "folder":
                continue
            with self.subTest(output):
                real, link = self.folder / "real", self.folder / output.name
                real.write_text('{"old":1}\n')
                link.symlink_to("real")
                done = self.run_tool(output.naming(output.name))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(link.is_symlink())
                self.assertEqual(real.read_bytes().startswith(b'{"old":1}\n'), output.kind == "rows")
                self.assertGreater(real.stat().st_size, 10)
                real.unlink()
                link.unlink()

    def test_one_file_for_two_outputs_is_refused(self):
        os.mkdir(self.folder / "o")
        (self.folder / "link").symlink_to("o")
        pairs = [
            (["run", "all_gather_matmul", *A, *B, *B], "--out", "x.npy", "--out", "./x.npy"),
            (["graph", "fuse", PROGRAM], "--json", "x.json", "--out", "x.json"),
            (["graph", "fuse", PROGRAM], "--json", "o/x.json", "--out", "link/x.json"),
            (["trace", "bench", *GATHER], "--json", "o/trace.json", "--out", "o"),
            (["trace", "bench", *GATHER], "--json", "link/trace.html", "--out", "o"),
            (["trace", *DEMO], "--json", "o/../o/trace.json", "--out", "o"),
        ]
        several = {tuple(output.line[:2]) for output in OUTPUTS if sum(o.line[:2] == output.line[:2] for o in OUTPUTS) > 1}
        self.assertIn(("graph", "fuse"), several)
        for line, flag, name, other_flag, other in pairs:
            with self.subTest(line=line, name=name):
                self.refused([*line, flag, name, other_flag, other], "the same file twice")
        path = self.folder / "x.json"
        path.write_text("{}")
        (self.folder / "y.json").symlink_to("x.json")
        self.refused(["graph", "fuse", PROGRAM, "--json", "x.json", "--out", "y.json"], "the same file twice")
        self.assertEqual(path.read_text(), "{}")

    # ---- disks

    def on_a_full_disk(self, output, num_free_bytes):
        """The finished tool, with an old file on a disk with so much room, and what is there afterwards."""
        script = """
            mount -t tmpfs -o size=512k none disk || exit 77
            case $KIND in
              folder) mkdir "disk/$NAME"; printf '{"old":1}\\n' > "disk/$NAME/trace.json" ;;
              *) printf '{"old":1}\\n' > "disk/$NAME" ;;
            esac
            dd if=/dev/zero of=disk/filler bs=4096 count=$((128 - FREE / 4096)) 2> /dev/null
            "$@" > out 2> error
            code=$?
            rm -rf disk/filler kept
            cp -R disk kept
            exit $code
        """
        disk = self.folder / "disk"
        disk.mkdir(exist_ok=True)
        env = {**cli_tool.environment_with({}), "KIND": output.kind, "NAME": output.name, "FREE": str(num_free_bytes)}
        line = [cli_tool.TOOL, *map(str, output.naming(f"disk/{output.name}"))]
        shutil.rmtree(self.folder / "kept", ignore_errors=True)
        done = subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", *line], cwd=self.folder, env=env,
                              capture_output=True, text=True, timeout=120)
        return done.returncode, (self.folder / "error").read_text() if (self.folder / "error").exists() else done.stderr

    def can_mount(self):
        (self.folder / "disk").mkdir()
        done = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "disk"], cwd=self.folder, capture_output=True)
        return done.returncode == 0

    def test_a_full_disk_is_named_and_costs_nothing(self):
        if not shutil.which("unshare") or not self.can_mount():
            self.skipTest("needs the right to mount a file system: no full disk here")
        for output in OUTPUTS:
            if output.line[0] == "tune":
                continue  # below
            failed = 0
            for num_free_bytes in (0, 4096, 8192):
                with self.subTest(output=output, num_free_bytes=num_free_bytes):
                    code, error = self.on_a_full_disk(output, num_free_bytes)
                    kept = self.folder / "kept"
                    self.assertEqual(sorted(os.listdir(kept)), [output.name], error)
                    file = kept / output.name / "trace.json" if output.kind == "folder" else kept / output.name
                    if code == 0:
                        continue
                    failed += 1
                    self.assertEqual(code, 1, error)
                    self.assertEqual(len(error.splitlines()), 1, error)
                    self.assertIn("No space left on device", error)
                    text = file.read_text()
                    if output.kind == "rows":  # some may have had room
                        self.assertTrue(text.startswith('{"old":1}\n') and text.endswith("\n"), text)
                        for line in text.splitlines():
                            json.loads(line)
                    else:
                        self.assertEqual(text, '{"old":1}\n')
                    if output.kind == "folder":
                        self.assertEqual(os.listdir(kept / output.name), ["trace.json"])
            small_rows = output.kind == "rows"  # what a page takes
            self.assertTrue(failed or small_rows, f"{output}: the disk was never full")

    def test_a_full_disk_keeps_the_rows_that_fit(self):
        if not shutil.which("unshare") or not self.can_mount():
            self.skipTest("needs the right to mount a file system: no full disk here")
        many = ["bench", "peaks", "--iterations", "1", "--warmup", "0", "--json"]
        code, error = self.on_a_full_disk(Output(many, "o.json", "rows"), 4096)
        self.assertEqual(code, 1, error)
        self.assertIn("No space left on device", error)
        lines = (self.folder / "kept" / "o.json").read_text().splitlines()
        self.assertGreater(len(lines), 3)
        for line in lines:
            json.loads(line)

    def test_a_table_survives_a_full_disk(self):
        if not shutil.which("unshare") or not self.can_mount():
            self.skipTest("needs the right to mount a file system: no full disk here")
        (output,) = [output for output in OUTPUTS if output.line[0] == "tune"]
        code, error = self.on_a_full_disk(output, 0)
        self.assertEqual(code, 1, error)
        self.assertEqual(len(error.splitlines()), 1, error)
        self.assertIn("No space left on device", error)

    def test_rows_past_a_limit_leave_none_cut_off(self):
        """Without the right to mount: a file that may not grow past what it has."""
        limit = 64 << 20  # more than ranks need of memory, whose files are under the limit too
        path = self.folder / "o.json"
        for output in OUTPUTS:
            if output.kind != "rows":
                continue
            for room in (0, 1, 50):
                with self.subTest(output=output, room=room):
                    with path.open("wb") as file:
                        file.truncate(limit - room - 1)
                        file.seek(limit - room - 1)
                        file.write(b"\n")
                    done = self.run_tool(output.naming("o.json"),
                                         lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
                    self.assertEqual(done.returncode, 1, done.stderr)
                    self.assertRegex(done.stderr, r"^tandem: --json o\.json: cannot add a row of \d+ bytes: File too large\n$")
                    self.assertEqual(path.stat().st_size, limit - room)
                    path.unlink()

    # ---- rows that a killed program left

    def rows_after(self, text):
        path = self.folder / "o.json"
        path.write_text(text)
        done = self.run_tool(["bench", "peaks", "--iterations", "1", "--warmup", "0", "--json", "o.json"])
        return done, path.read_text()

    def test_a_cut_off_row_goes(self):
        for before, stays in (('{"a":1}\n{"b":', '{"a":1}\n'), ('{"b":', ""), ('{"a":1}\n{"b":"' + "x" * 200000, '{"a":1}\n'),
                              ('{"a":1}', '{"a":1}\n'), ("", ""), ('{"a":1}\n', '{"a":1}\n')):
            with self.subTest(before[:20]):
                done, after = self.rows_after(before)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(after.startswith(stays + '{"'), after[:80])
                for line in after.splitlines():
                    json.loads(line)
                self.assertNotIn('"b"', after)

    def test_a_file_of_something_else_is_no_file_of_rows(self):
        done, after = self.rows_after("my notes\nwithout an end")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("its last line is no JSON", done.stderr)
        self.assertEqual(after, "my notes\nwithout an end")

    def test_names_and_rows_may_hold_any_bytes(self):
        odd = os.fsdecode(b"odd\xff")
        for output in OUTPUTS:
            with self.subTest(output):
                done = subprocess.run([os.fsencode(str(word)) for word in [cli_tool.TOOL, *output.naming(odd + output.name)]],
                                      cwd=self.folder, env=cli_tool.environment_with({}), capture_output=True, timeout=120)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(odd + output.name, os.listdir(self.folder))

    def test_permissions_of_a_replaced_file_stay(self):
        for output in OUTPUTS:
            if output.kind == "folder":
                continue
            with self.subTest(output):
                path = self.folder / output.name
                path.write_text('{"old":1}\n')
                path.chmod(0o600)
                done = self.run_tool(output.naming(output.name))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(path.stat().st_mode & 0o777, 0o600)
                path.unlink()


if __name__ == "__main__":
    cli_tool.main("__main__")
