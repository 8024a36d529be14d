"""Sandboxes: namespaces, mounts, hidden or missing /proc, refused system calls and control groups. In each, a job works, or
one line says what is missing; a rank that dies is named, and one that lives is never taken for dead."""

import ctypes
import os
import pathlib
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool

RANKS = 3
NOBODY = 65534
# Of x86-64 and of arm64.
CALLS = {
    "clone3": (435, 435),
    "eventfd2": (290, 19),
    "fallocate": (285, 47),
    "getrandom": (318, 278),
    "kill": (62, 129),
    "memfd_create": (319, 279),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pipe2": (293, 59),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "socketpair": (53, 199),
    "statx": (332, 291),
}
ENOSYS, EPERM = 38, 1

LIBC = ctypes.CDLL(None, use_errno=True)


def number_of(call):
    return CALLS[call][platform.machine() != "x86_64"]


def refuse(error, *calls):
    """For preexec_fn: the kernel refuses these calls from here on."""
    code = b"".join(
        [struct.pack("HBBI", 0x20, 0, 0, 0)]  # load the number
        + [struct.pack("HBBI", 0x15, 0, 1, number_of(call)) + struct.pack("HBBI", 0x06, 0, 0, 0x00050000 | error) for call in calls]
        + [struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)]
    )
    data = ctypes.create_string_buffer(code, len(code))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    program = Program(len(code) // 8, ctypes.addressof(data))

    def install():
        no_new_privs = LIBC.syscall(number_of("prctl"), 38, 1, 0, 0, 0)
        if no_new_privs or LIBC.syscall(number_of("prctl"), 22, 2, ctypes.byref(program), 0, 0):
            raise OSError(ctypes.get_errno(), "no seccomp filter")

    install.keep = data
    return install


class Sandbox:
    """prefix: what comes before the tool's name. calls: refused with `error`. works: whether a job does. doctor: what `doctor`
    says. line: what the one line says, of the failure or of what is weaker. as_nobody: by a user who may not read the tool."""

    def __init__(self, *prefix, calls=(), error=ENOSYS, works=True, sees=True, doctor="", line="", as_nobody=False):
        self.prefix, self.calls, self.error = prefix, calls, error
        self.works, self.sees, self.doctor, self.line, self.as_nobody = works, sees, doctor, line, as_nobody


def mounted(commands, *more_flags):
    """A mount namespace in which these commands have run."""
    return ["unshare", "-m", *more_flags, "sh", "-c", f'mount --make-rprivate / && {commands} && exec "$@"', "sh"]


AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
HIDDEN = "dead ranks   MAY GO UNSEEN: pidfd_open: "
SANDBOXES = {
    "user_namespace": Sandbox("unshare", "-r"),
    "network_namespace": Sandbox("unshare", "-n"),
    "time_namespace": Sandbox("unshare", "-T"),
    "pid_namespace": Sandbox("unshare", "-p", "-f", "--mount-proc"),
    "pid_namespace_with_the_old_proc": Sandbox("unshare", "-p", "-f"),
    "pid_namespace_of_the_ranks_alone": Sandbox("unshare", "-p", works=False, line="unshare needs --fork",
                                               doctor="unshare needs --fork"),
    "user_and_pid_namespace": Sandbox("unshare", "-r", "-p", "-f", "-m", "--mount-proc"),
    "read_only_root": Sandbox(*mounted("mount --bind {folder} {folder} && mount -o remount,bind,ro /")),
    "no_dev_shm": Sandbox(*mounted("mount -t tmpfs -o ro none /dev/shm")),
    "read_only_tmp": Sandbox(*mounted("mount --bind /tmp /tmp && mount --bind {folder} {folder} && "
                                       "mount -o remount,bind,ro /tmp")),
    "no_proc": Sandbox(*mounted("mount -t tmpfs none /proc"), works=False, line="mount /proc", doctor="mount /proc"),
    "empty_sys": Sandbox(*mounted("mount -t tmpfs -o ro none /sys")),
    "no_pidfd": Sandbox(calls=["pidfd_open"], doctor="/proc is read every 10 ms"),
    "forbidden_pidfd": Sandbox(calls=["pidfd_open"], error=EPERM, doctor="/proc is read every 10 ms"),
    "no_pidfd_and_the_old_proc": Sandbox("unshare", "-p", "-f", calls=["pidfd_open"], sees=False, doctor=HIDDEN),
    **{
        f"hidepid_{level}{'_and_no_pidfd' if calls else ''}": Sandbox(
            *mounted(f"mount -t proc -o hidepid={level} proc /proc"), *AS_NOBODY, as_nobody=True, calls=calls,
            sees=not calls, doctor=HIDDEN if calls else "dead ranks   ok")
        for level in (1, 2, 4)
        for calls in ((), ["pidfd_open"])
    },
}


class SandboxCase(unittest.TestCase):
    """One small product, its right result, and the tool in a sandbox."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="cli_sandbox_")
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        os.chmod(self.folder, 0o777)
        self.tool = cli_tool.TOOL
        cli_tool.write_npy(self.path("a.npy"), [24, 8], cli_tool.pseudo_random(192, 1))
        cli_tool.write_npy(self.path("b.npy"), [8, 6], cli_tool.pseudo_random(48, 2))
        self.expected = self.run_tool(*self.command("plain.npy"))
        self.assertEqual(self.expected.returncode, 0, self.expected.stderr)
        self.expected = pathlib.Path(self.path("plain.npy")).read_bytes()

    def path(self, name):
        return os.path.join(self.folder, name)

    def command(self, out):
        return [self.tool, "run", "all_gather_matmul", "--a", self.path("a.npy"), "--b", self.path("b.npy"),
                "--out", self.path(out), "--ranks", str(RANKS), "--algorithm", "pipelined"]

    def run_tool(self, *command, env=None, preexec=None):
        return subprocess.run(command, env=cli_tool.environment_with(env), capture_output=True, text=True,
                              timeout=60, preexec_fn=preexec, cwd=self.folder)

    def lines_of(self, done):
        self.assertNotIn("terminate called", done.stderr)
        return [line for line in done.stderr.splitlines() if line.strip()]

    def is_right(self, out):
        return pathlib.Path(self.path(out)).read_bytes() == self.expected


class Sandboxes(SandboxCase):
    def start(self, sandbox):
        """How to run commands there; skips where this machine does not allow it."""
        prefix = [part.format(folder=self.folder) for part in sandbox.prefix]
        preexec = refuse(sandbox.error, *sandbox.calls) if sandbox.calls else None
        if sandbox.as_nobody:
            if os.getuid() != 0:
                self.skipTest("only root can become another user")
            self.tool = self.path("unreadable_tandem")
            shutil.copyfile(cli_tool.TOOL, self.tool)
            os.chmod(self.tool, 0o711)
        try:
            tried = self.run_tool(*prefix, "true", preexec=preexec)
        except (OSError, subprocess.SubprocessError) as error:
            self.skipTest(f"not allowed here: {error}")
        if tried.returncode != 0:
            self.skipTest(f"not allowed here: {' '.join(prefix)}: {tried.stderr.strip()}")
        return lambda *command, env=None: self.run_tool(*prefix, *command, env=env, preexec=preexec)

    def check(self, sandbox):
        run = self.start(sandbox)
        done = run(*self.command("out.npy"))
        lines = self.lines_of(done)
        self.assertEqual(len(lines), 0 if sandbox.works and sandbox.sees else 1, done.stderr)
        if not sandbox.works:
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(sandbox.line, lines[0])
        else:
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(self.is_right("out.npy"))
            if not sandbox.sees:
                self.assertRegex(lines[0], r"group 'run': rank 0 may not see when ranks 1, 2 die \(pidfd_open: .*/proc.*TANDEM_OP_TIMEOUT_MS")
            self.check_death(sandbox, run)
        report = run(self.tool, "doctor")
        # 1: the tool has not come as far as its checks.
        self.assertIn(report.returncode, (0,) if sandbox.works else (1, 4), report.stdout + report.stderr)
        self.assertIn(sandbox.doctor or "dead ranks   ok: seen by the others", report.stdout + report.stderr)
        self.assertEqual(len(self.lines_of(report)), 0 if sandbox.works else 1, report.stderr)

    def check_death(self, sandbox, run):
        """A rank that dies is named, by the other ranks or by the launcher."""
        done = run(*self.command("dead.npy"), env={"TANDEM_FAULT": "rendezvous:1:1:die"})
        self.assertEqual(done.returncode, 1, done.stderr)
        lines = self.lines_of(done)
        self.assertEqual(len(lines), 1 if sandbox.sees else 2, done.stderr)
        self.assertIn("rank 1", lines[-1])
        self.assertFalse(os.path.exists(self.path("dead.npy")))

    def test_each_refused_call_works_or_is_one_line(self):
        for call in CALLS:
            for error in (ENOSYS, EPERM):
                with self.subTest(call=call, error=error):
                    sandbox = Sandbox(calls=[call], error=error)
                    run = self.start(sandbox)
                    done = run(*self.command(f"{call}{error}.npy"))
                    lines = self.lines_of(done)
                    if done.returncode == 0:
                        self.assertEqual(lines, [])
                        self.assertTrue(self.is_right(f"{call}{error}.npy"))
                    else:
                        self.assertIn(done.returncode, (1, 4), done.stderr)
                        self.assertEqual(len(lines), 1, done.stderr)
                        self.assertFalse(os.path.exists(self.path(f"{call}{error}.npy")))


for name, sandbox in SANDBOXES.items():
    setattr(Sandboxes, f"test_{name}", lambda self, sandbox=sandbox: self.check(sandbox))


class ControlGroups(SandboxCase):
    """Limits of tasks and memory by control groups, version 1 and 2."""

    def group(self, controller):
        """(folder, version) of a fresh control group with this controller for each version; skips where there is none."""
        name = f"tandem_test_{os.getpid()}"
        reasons = []
        for root, version in (("/sys/fs/cgroup/" + controller, 1), ("/sys/fs/cgroup/unified", 2), ("/sys/fs/cgroup", 2)):
            try:
                if version == 2 and controller not in pathlib.Path(root, "cgroup.subtree_control").read_text().split():
                    pathlib.Path(root, "cgroup.subtree_control").write_text("+" + controller)
                folder = pathlib.Path(root, name)
                folder.mkdir()
            except OSError as error:
                reasons.append(str(error))
                continue
            self.addCleanup(folder.rmdir)
            yield folder, version
        if len(reasons) == 3:
            self.skipTest(f"no {controller} control group can be made: {'; '.join(reasons)}")

    def run_in(self, folder, out):
        def enter():
            (folder / "cgroup.procs").write_text(str(os.getpid()))

        return self.run_tool(*self.command(out), preexec=enter)

    def is_result_or_line(self, done, out):
        lines = self.lines_of(done)
        if done.returncode == 0:
            self.assertEqual(lines, [])
            self.assertTrue(self.is_right(out))
            return True
        self.assertEqual((done.returncode, len(lines)), (1, 1), done.stderr)
        return False

    def test_limit_of_tasks(self):
        for folder, version in self.group("pids"):
            worked = []
            # With three, the launcher has a thread for signals and one for its store.
            for limit in (*range(3, 20), 64):
                with self.subTest(version=version, limit=limit):
                    (folder / "pids.max").write_text(str(limit))
                    done = self.run_in(folder, f"tasks{limit}.npy")
                    worked.append(self.is_result_or_line(done, f"tasks{limit}.npy"))
                    if not worked[-1]:
                        self.assertIn("pids.max", done.stderr)
            self.assertEqual((worked[0], worked[-1]), (False, True))

    def test_limit_of_memory(self):
        for folder, version in self.group("memory"):
            file = "memory.limit_in_bytes" if version == 1 else "memory.max"
            for mebibytes in (48, 512):
                with self.subTest(version=version, mebibytes=mebibytes):
                    (folder / file).write_text(str(mebibytes << 20))
                    done = self.run_in(folder, f"memory{mebibytes}.npy")
                    works = self.is_result_or_line(done, f"memory{mebibytes}.npy")
                    self.assertTrue(works or mebibytes < 512, done.stderr)


if __name__ == "__main__":
    cli_tool.main("__main__")
