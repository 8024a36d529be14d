"""Each system call of small programs fails once. No program hangs, aborts or leaves anything behind. It does its work, or
ends with an error of one line. Interrupted calls, and reads and writes of a part, do no harm.

Usage: cli_syscalls_test.py TOOL SHIM RANKS [--all | --only PROGRAM CALL[@SITE]:N:ACTION] [unittest arguments]

SHIM is the library of support/syscall_faults.cpp, RANKS the program of support/syscall_ranks.cpp. The first use at each call
site fails, once with each errno that the call may give. A site is told by the two innermost functions. With --all it is told
by its whole chain of callers, which takes long. --only shows what becomes of one fault.
"""

import bisect
import collections
import concurrent.futures
import errno
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool

FOLDER = pathlib.Path(__file__).resolve().parent.parent
CALLS = re.findall(
    r'"(\w+)"',
    re.search(r"kCalls\[\] = \{(.*?)\};", (FOLDER / "support/syscall_faults.cpp").read_text(), re.S).group(1),
)
# struct Counts there
SITE_BYTES = 8 * (3 + 24)
NUM_SITES = 2048
SITES_AT = 8 * (64 + 2)
COUNTS_BYTES = SITES_AT + NUM_SITES * SITE_BYTES

# What the system gives for each call when a limit is met, or a right is missing.
ERRORS = {
    "open": ["EMFILE"],
    "openat": ["EMFILE"],
    "socket": ["EMFILE", "ENOMEM"],
    "socketpair": ["EMFILE"],
    "accept4": ["EMFILE", "ENOMEM"],
    "bind": ["ENOMEM", "ENOSPC"],
    "listen": ["ENOMEM"],
    "connect": ["EAGAIN"],
    "read": ["EIO"],
    "write": ["ENOSPC", "EIO"],
    "recvmsg": ["EAGAIN", "ENOMEM"],
    "sendmsg": ["ENOMEM"],
    "pread": ["EIO"],
    "pwrite": ["ENOSPC", "EIO"],
    "mmap": ["ENOMEM", "EAGAIN"],
    "fcntl": ["EMFILE"],
    "fsync": ["EIO", "ENOSPC"],
    "ftruncate": ["ENOSPC"],
    "posix_fallocate": ["ENOSPC", "ENOMEM"],
    "fallocate": ["ENOSPC", "ENOMEM"],
    "memfd_create": ["EMFILE", "ENOMEM", "EPERM"],
    "eventfd": ["EMFILE", "ENOMEM"],
    "getrandom": ["ENOSYS"],
    "pidfd_open": ["EMFILE", "ENOMEM", "EPERM", "ENOSYS"],
    "fork": ["EAGAIN", "ENOMEM"],
    "flock": ["ENOLCK"],
    "rename": ["ENOSPC"],
    "renameat": ["ENOSPC"],
    "pthread_create": ["EAGAIN"],
    "mkdtemp": ["ENOSPC"],
    "poll": ["ENOMEM"],
    "pipe2": ["EMFILE"],
    "linkat": ["ENOSPC"],
    "fchmod": ["EPERM"],
    "close": ["EIO"],
    "execv": ["ENOMEM"],
    "waitpid": [],
}
# What must do no harm.
HARMLESS = {
    **{call: ["EINTR"] for call in ("open", "openat", "accept4", "connect", "recvmsg", "sendmsg", "ftruncate", "flock")},
    **{call: ["EINTR", "short"] for call in ("read", "write", "pread", "pwrite")},
    **{call: ["EINTR"] for call in ("posix_fallocate", "fallocate", "fsync", "getrandom", "poll", "waitpid")},
}
assert set(ERRORS) == set(CALLS), set(ERRORS) ^ set(CALLS)

SHORT_TIMEOUTS = {"TANDEM_OP_TIMEOUT_MS": "20000", "TANDEM_RENDEZVOUS_TIMEOUT_MS": "20000"}
LONGEST_S = 120

Ended = collections.namedtuple("Ended", "code out error files sites victim_frames")
Site = collections.namedtuple("Site", "hash call frames")


class Symbols:
    """Says where an address of a program is by function and offset: the same in all programs that hold the function."""

    def __init__(self, path):
        done = subprocess.run(["nm", "--defined-only", "-n", path], capture_output=True, text=True)
        lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
        self.addresses = [int(address, 16) for address, _, _ in lines]
        self.names = [name for _, _, name in lines]

    def place(self, frame):
        i = bisect.bisect_right(self.addresses, frame) - 1
        return (self.names[i], frame - self.addresses[i]) if i >= 0 else frame


def sites_of(data):
    """(the sites that were used, the frames of the one that met the fault, or None)"""
    sites = []
    for at in range(SITES_AT, COUNTS_BYTES, SITE_BYTES):
        site_hash, _, call, *frames = struct.unpack_from("<27Q", data, at)
        if site_hash:
            sites.append(Site(site_hash, CALLS[call], frames))
    victim, victim_site = struct.unpack_from("<2Q", data, 8 * 64)
    frames = struct.unpack_from("<24Q", data, SITES_AT + victim_site * SITE_BYTES + 24)
    return sites, frames if victim else None


class Program:
    """A command, its files, and what they hold afterwards. `is_right(plain, ended)` judges a run that says it succeeded by
    one without a fault."""

    def __init__(self, name, command, is_right, outputs=(), prepare=None):
        self.name, self.command, self.is_right, self.outputs, self.prepare = name, command, is_right, outputs, prepare

    def run(self, fault=None):
        """(what came of it, what it left behind)"""
        with tempfile.TemporaryDirectory(prefix="syscalls_") as folder:
            work, temporary, counts = (os.path.join(folder, name) for name in ("work", "tmp", "counts"))
            os.mkdir(work)
            os.mkdir(temporary)
            pathlib.Path(counts).write_bytes(bytes(COUNTS_BYTES))
            if self.prepare:
                self.prepare(work)
            given = set(os.listdir(work))
            env = cli_tool.environment_with(
                {**SHORT_TIMEOUTS, "TMPDIR": temporary, "LD_PRELOAD": SHIM, "TANDEM_TEST_SYSCALL_COUNTS": counts}
            )
            if fault:
                env["TANDEM_TEST_SYSCALL"] = fault
            if not IS_ALL:
                env["TANDEM_TEST_SYSCALL_DEPTH"] = "2"
            process = subprocess.Popen(
                self.command,
                cwd=work,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            try:
                out, error = process.communicate(timeout=LONGEST_S)
                code = process.returncode
            except subprocess.TimeoutExpired:
                code, out, error = "hang", "", ""
            left = self.left_running(process.pid)
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.communicate()
            left += [f"$TMPDIR/{name}" for name in os.listdir(temporary)]
            left += [name for name in set(os.listdir(work)) - given - set(self.outputs)]
            paths = {name: pathlib.Path(work, name) for name in self.outputs}
            files = {name: path.read_bytes() for name, path in paths.items() if path.is_file()}
            files |= {file.name: file.read_bytes() for path in paths.values() for file in path.glob("*.json")}
            sites, frames = sites_of(pathlib.Path(counts).read_bytes())
            return Ended(code, out, error, files, sites, frames), left

    @staticmethod
    def left_running(session):
        """Processes of the session that still run a moment after its leader has ended."""

        def found():
            done = subprocess.run(["ps", "-o", "pid=,stat=,args=", "-s", str(session)], capture_output=True, text=True)
            return [line.strip() for line in done.stdout.splitlines() if "<defunct>" not in line]

        cli_tool.wait_until(lambda: not found(), 3)
        return [f"running: {line}" for line in found()]


def write_operands(folder):
    cli_tool.write_npy(os.path.join(folder, "a.npy"), [16, 8], [0.5] * 128)
    cli_tool.write_npy(os.path.join(folder, "b.npy"), [8, 8], [0.25] * 64)


FIRST_ROW = b'{"a":1}\n'


def write_rows(folder):
    pathlib.Path(folder, "rows.json").write_bytes(FIRST_ROW + b'{"cut off')


def has_one_more_row(plain, ended):
    """Of a file of rows: the whole row that was there, and one that is new."""
    rows = ended.files["rows.json"]
    return rows.startswith(FIRST_ROW) and rows.count(b"\n") == 2 and "op" in json.loads(rows.splitlines()[1])


def has_table(plain, ended):
    names = [name for name in plain.files if name.endswith(".json")]
    return len(names) == 1 and all(name in ended.files and json.loads(ended.files[name]) for name in names)


def programs():
    tool = cli_tool.TOOL
    operands = ["--a", "a.npy", "--b", "b.npy", "--out", "out.npy"]
    graph = str(FOLDER / "golden/programs/mlp_tp2.txt")
    small = "--m 16 --n 16 --k 16 --dtype f32 --iterations 1 --warmup 0 --ranks 2".split()
    says_the_same = lambda plain, ended: ended.out == plain.out
    writes_the_same = lambda plain, ended: ended.files == plain.files
    return [
        Program("processes", [RANKS, "processes"], says_the_same),
        Program("threads", [RANKS, "threads"], says_the_same),
        Program("listen", [RANKS, "listen"], says_the_same),
        Program("run", [tool, "run", "all_gather_matmul", *operands, "--ranks", "2"], writes_the_same, ["out.npy"], write_operands),
        Program("tune", [tool, "tune", "all_gather_matmul", *small, "--folder", "table"], has_table, ["table"]),
        Program("bench", [tool, "bench", "mm", *small, "--json", "rows.json"], has_one_more_row, ["rows.json"], write_rows),
        Program("graph", [tool, "graph", "run", graph], says_the_same),
        Program("doctor", [tool, "doctor"], lambda plain, ended: ended.out.splitlines()[0] == plain.out.splitlines()[0]),
    ]


def faults_of(plain, symbols, seen):
    """One per site and action, but for sites that are in `seen`, where those of `plain` are put."""
    found = []
    for site in plain.sites:
        place = (site.call, tuple(symbols.place(frame) for frame in site.frames if frame))
        if place not in seen:
            actions = ERRORS[site.call] + HARMLESS.get(site.call, [])
            found += [f"{site.call}@{site.hash:x}:1:{action}" for action in actions]
            seen.add(place)
    return sorted(found)


def what_is_wrong(program, plain, fault, ended, left):
    """None, or a text. `plain` is what came of the program without a fault."""
    call, action = re.match(r"(\w+).*:(\w+)$", fault).groups()
    lines = [line for line in ended.error.splitlines() if line.strip()]
    torn = [name for name in ended.files if name.endswith(".npy") and ended.files[name] != plain.files[name]]
    if torn:
        return f"leaves {torn} half written"
    if ended.code == "hang":
        return "hangs"
    if ended.code < 0 or ended.code >= 128 or "terminate called" in ended.error or "was ended by signal" in ended.error:
        return f"ends by a signal or abort ({ended.code}): {ended.error[-300:]}"
    if left:
        return f"leaves {left}; exit code {ended.code}: {ended.error[-300:]}"
    if ended.code == 0 and call == "fsync" and action != "EINTR" and ended.victim_frames:
        return "does not say that the file is not on the disk"
    if ended.code == 0:
        return None if program.is_right(plain, ended) else f"succeeds with a wrong result: {ended.out[-300:]}{ended.error[-300:]}"
    if not ended.victim_frames:
        return f"fails without the fault: {ended.error[-300:]}"
    if action in HARMLESS.get(call, []):
        return f"is harmed: {ended.error[-300:]}"
    # A rank that could not join its job cannot tell the launcher: each has a line then.
    launchers = ("did not say why", "before it joined the job")
    own_lines = [line for line in lines if not any(text in line for text in launchers)]
    if len(own_lines) != 1 or len(lines) > 2 or len(own_lines[0]) < 20:
        return f"says {len(lines)} lines: {ended.error[-500:]}"
    if os.strerror(getattr(errno, action)) not in own_lines[0]:
        return f"does not say why: {ended.error[-500:]}"
    return None


class SystemCalls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.plain, cls.faults = {}, {}
        symbols, seen = {path: Symbols(path) for path in (RANKS, cli_tool.TOOL)}, set()
        for program in programs():
            cls.plain[program.name], left = program.run()
            cls.faults[program.name] = faults_of(cls.plain[program.name], symbols[program.command[0]], seen)
            assert cls.plain[program.name].code == 0, cls.plain[program.name].error
            assert not left, left
            assert len(cls.plain[program.name].sites) > 5, "the library for LD_PRELOAD does not see the program's calls"

    def check_program(self, program):
        plain, faults = self.plain[program.name], self.faults[program.name]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            results = list(pool.map(program.run, faults))
        num_met = 0
        for fault, (ended, left) in zip(faults, results):
            num_met += ended.victim_frames is not None
            with self.subTest(f"{program.name} {fault}"):
                wrong = what_is_wrong(program, plain, fault, ended, left)
                self.assertIsNone(wrong, wrong and functions(program, ended.victim_frames or []))
        print(f"{program.name}: {num_met} of {len(faults)} faults were met")
        self.assertGreaterEqual(num_met, 0.9 * len(faults), "the others never came to their call")


def functions(program, frames):
    """The names of the callers, if the program has names for them."""
    addresses = [hex(frame - 1) for frame in frames if frame]
    done = subprocess.run(["addr2line", "-Cfsp", "-e", program.command[0], *addresses], capture_output=True, text=True)
    return "\n".join(line.replace(" at ??:?", "") for line in done.stdout.splitlines()[:8])


def test_of(program):
    return lambda self: self.check_program(program)


def show(name, fault):
    program = next(program for program in programs() if program.name == name)
    ended, left = program.run(fault)
    print(f"exit code {ended.code}, leaves {left}\n{ended.out}{ended.error}{functions(program, ended.victim_frames or [])}")


if __name__ == "__main__":
    SHIM, RANKS = (os.path.abspath(sys.argv.pop(2)) for _ in range(2))
    IS_ALL = "--all" in sys.argv
    if IS_ALL:
        sys.argv.remove("--all")
    cli_tool.TOOL = os.path.abspath(sys.argv[1])
    if "--only" in sys.argv:
        show(*sys.argv[sys.argv.index("--only") + 1 :])
        sys.exit()
    for _program in programs():
        setattr(SystemCalls, f"test_{_program.name}", test_of(_program))
    cli_tool.main(__name__)
