"""Two hosts as network namespaces, joined by Open MPI over TCP: hosts_test.py HOSTS_RANK [TANDEM]. What lies on one machine is told apart
by its name (TANDEM_HOST). Skipped, with the reason, where there are no namespaces or no mpirun."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool

RANK = None  # the program that each rank runs
TOOL = None
LINK = "veth0"
OPS = ("all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce")


def sh(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=True, **options)


def why_not():
    """Why these tests cannot run here; empty if they can."""
    for tool in ("ip", "mpirun", "unshare"):
        if shutil.which(tool) is None:
            return f"no {tool} here"
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    name = f"tandem-try-{os.getpid()}"
    try:
        sh("ip", "netns", "add", name)
        sh("ip", "netns", "exec", name, "unshare", "--uts", "true")
        sh("ip", "netns", "del", name)
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here: {error.stderr.strip()}"
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    return "" if "Open MPI" in version else f"mpirun is not Open MPI's: {version.splitlines()[:1]}"


class TwoHosts:
    """Namespaces a and b with one link between them."""

    def __init__(self):
        self.names = [f"tandem-{os.getpid()}-{x}" for x in "ab"]
        self.addresses = ["10.231.7.1", "10.231.7.2"]
        self.link = LINK  # by which MPI goes
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-hosts-"))
        a, b = self.names
        for name in self.names:
            sh("ip", "netns", "add", name)
            sh("ip", "-n", name, "link", "set", "lo", "up")
        sh("ip", "link", "add", LINK, "netns", a, "type", "veth", "peer", "name", LINK, "netns", b)
        for name, address in zip(self.names, self.addresses):
            sh("ip", "-n", name, "addr", "add", f"{address}/24", "dev", LINK)
            sh("ip", "-n", name, "link", "set", LINK, "up")
        # What mpirun starts a host's daemon with in place of ssh: an address and a command.
        agent = self.folder / "agent"
        agent.write_text("#!/bin/sh\nshift\n"
                         f"exec ip netns exec {b} unshare --uts sh -c 'hostname host-b; exec sh -c \"$0\"' \"$*\"\n")
        agent.chmod(0o755)
        self.agent = agent

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "pids", name], capture_output=True)
            for pid in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def shape(self, *how):
        for name in self.names:
            sh("tc", "-n", name, "qdisc", "replace", "dev", LINK, "root", *how)

    def cut(self):
        sh("ip", "-n", self.names[0], "link", "set", LINK, "down")

    def start(self, ranks, *arguments, environment=(), program=None, hosts=2):
        """More `hosts` than namespaces: those of one namespace are told apart by their names alone."""
        a = self.names[0]
        each = ranks // 2
        name = f"$(hostname)-$((OMPI_COMM_WORLD_LOCAL_RANK / {ranks // hosts}))"
        settings = {"TANDEM_OP_TIMEOUT_MS": "20000", "TANDEM_RENDEZVOUS_TIMEOUT_MS": "30000", **dict(environment)}
        exports = [word for name, value in settings.items() for word in ("-x", f"{name}={value}")]
        line = ["ip", "netns", "exec", a, "unshare", "--uts", "sh", "-c", 'hostname host-a; exec "$@"', "sh", "mpirun",
                "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--tag-output",
                "--mca", "plm_rsh_agent", str(self.agent), "--mca", "plm_rsh_no_tree_spawn", "1",
                "--mca", "orte_abort_on_non_zero_status", "0", "--mca", "orte_enable_recovery", "1",
                "--mca", "btl", "tcp,self", "--mca", "pml", "ob1", "--mca", "btl_tcp_if_include", self.link,
                "--mca", "oob_tcp_if_include", self.link,
                "--host", ",".join(f"{address}:{each}" for address in self.addresses), "-n", str(ranks), *exports,
                "sh", "-c", f'export TANDEM_HOST={name}; exec "$@"', "sh", program or RANK, *map(str, arguments)]
        # Its own session: an orphan of a broken run ends with it.
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                                env={**os.environ, "TMPDIR": str(self.folder)})

    def ended(self, process, seconds):
        try:
            out, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, _ = process.communicate()
            raise AssertionError(f"it hangs after {seconds} s:\n{out}")
        return process.returncode, out

    def pids_of_ranks(self, host):
        pids = subprocess.run(["ip", "netns", "pids", self.names[host]], capture_output=True, text=True).stdout.split()
        found = []
        for pid in pids:
            try:
                if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == pathlib.Path(RANK).name:
                    found.append(int(pid))
            except OSError:
                pass
        return found


class Hosts(unittest.TestCase):
    def setUp(self):
        self.hosts = TwoHosts()
        self.addCleanup(self.hosts.close)

    def test_every_op_type_and_dim_is_right(self):
        for ranks in (2, 4, 8):
            with self.subTest(ranks=ranks):
                code, out = self.hosts.ended(self.hosts.start(ranks, "check"), 400)
                self.assertEqual(code, 0, out)
                self.assertEqual(len(re.findall(rf"of {ranks} on host \d of 2: \d+ cases right", out)), ranks, out)

    def test_the_tool_checks_every_op(self):
        if TOOL is None:
            self.skipTest("the tool is not built")
        for op in OPS:
            with self.subTest(op):
                code, out = self.hosts.ended(self.hosts.start(4, "check", op, program=TOOL), 400)
                self.assertEqual(code, 0, out)
                self.assertRegex(out, r"ranks 4: \d+ cases run, 0 skipped, 0 wrong")

    def test_the_tool_times_every_op(self):
        if TOOL is None:
            self.skipTest("the tool is not built")
        for op in OPS:
            with self.subTest(op):
                code, out = self.hosts.ended(self.hosts.start(4, "bench", op, "--m", 256, "--n", 96, "--k", 128, "--iterations", 2,
                                                              program=TOOL), 200)
                self.assertEqual(code, 0, out)
                self.assertRegex(out, rf"{op} +256 +96 +128 .* {'native' if op == 'all_gather_matmul' else 'pipelined'} .* 0\n")

    def test_a_timeline_tells_the_levels_apart(self):
        if TOOL is None:
            self.skipTest("the tool is not built")
        folder = self.hosts.folder / "timeline"
        code, out = self.hosts.ended(self.hosts.start(4, "trace", "bench", "all_gather_matmul", "--m", 1024, "--n", 96, "--k", 256,
                                                      "--iterations", 2, "--out", folder, program=TOOL), 200)
        self.assertEqual(code, 0, out)
        self.assertRegex(out, r" native\n.* of that between hosts\n")
        for event in json.loads((folder / "trace.json").read_text())["traceEvents"]:
            waited = re.search("product waits for chunk .* of rank (.*)", event.get("args", {}).get("step", ""))
            if waited and event["pid"] < 2:  # the other rank of this host, or one of the other host
                self.assertNotEqual(int(waited.group(1)), event["pid"], event)
        ranks = json.loads((folder / "trace.json").read_text())["tandem"]["ranks"]
        self.assertEqual(len(ranks), 4)
        for rank in ranks:
            self.assertGreater(rank["between_hosts_us"], 0)
            self.assertLessEqual(rank["between_hosts_us"], rank["communication_us"])

    def test_the_tool_says_what_does_not_cross(self):
        if TOOL is None:
            self.skipTest("the tool is not built")
        code, out = self.hosts.ended(self.hosts.start(4, "tune", program=TOOL), 60)
        self.assertIn("needs no table on several hosts; start at most 2 ranks on one", out)

    def test_the_tool_asks_each_host_for_its_own_ranks_memory(self):
        if TOOL is None:
            self.skipTest("the tool is not built")
        words = ["bench", "all_gather_matmul", "--m", str(1 << 22), "--n", str(1 << 22), "--k", "4096"]
        need = r"bench on 4 ranks{}: (\d+) bytes asked for"
        _, out = self.hosts.ended(self.hosts.start(4, *words, program=TOOL), 60)
        self.assertRegex(out, need.format(", 2 of them on this host"))
        on_two = int(re.search(need.format(", 2 of them on this host"), out).group(1))
        on_one = subprocess.run([TOOL, *words, "--ranks", "4"], capture_output=True, text=True, check=False)
        self.assertEqual(on_one.returncode, 2, on_one)
        self.assertEqual(2 * on_two, int(re.search(need.format(""), on_one.stderr).group(1)))

    DEMO = ("demo", "--scale", "1/32", "--seconds", "1")

    def test_the_demo_is_right(self):
        if TOOL is None:
            self.skipTest("the tool is not built")
        rows = self.hosts.folder / "rows.json"
        code, out = self.hosts.ended(self.hosts.start(4, *self.DEMO, "--json", rows, program=TOOL), 100)
        self.assertEqual(code, 0, out)
        self.assertIn("4 ranks of Open MPI on 2 hosts", out)
        self.assertRegex(out, r"2 hosts: Open MPI v\S+ carries rows between them")
        self.assertRegex(out, r"4096 sampled outputs against float64 (?s:.*): all equal\n")
        (row,) = map(json.loads, rows.read_text().splitlines())
        self.assertEqual((row["hosts"], row["link_delay_us"], row["world"]), (2, 0, 4))
        self.assertRegex(row["transport"], "^Open MPI v")
        self.assertEqual([op["overlapped_by"] for op in row["ops"]], ["native", "pipelined"])

    def test_the_demo_finds_what_is_wrong(self):
        if TOOL is None:
            self.skipTest("the tool is not built")
        _, out = self.hosts.ended(self.hosts.start(4, *self.DEMO, environment={"TANDEM_FAULT": "get:1:9:corrupt"},
                                                   program=TOOL), 100)
        self.assertIn("demo: wrong result: ", out)
        self.assertNotIn("all equal", out)

    def test_the_demo_simulates_no_link_beside_a_real_one(self):
        if TOOL is None:
            self.skipTest("the tool is not built")
        _, out = self.hosts.ended(self.hosts.start(4, *self.DEMO, "--link-delay-us", 300, program=TOOL), 100)
        self.assertIn("--link-delay-us 300: ranks are on 2 hosts, and rows cross a real link; leave out the flag", out)

    def test_run_writes_what_one_host_writes(self):
        if TOOL is None:
            self.skipTest("the tool is not built")
        folder = self.hosts.folder
        # Integers: sums in any order have the same bits.
        for name, sizes in (("a.npy", [37, 64]), ("b.npy", [64, 50])):
            count = sizes[0] * sizes[1]
            cli_tool.write_npy(folder / name, sizes, [float(7 * i % 5 - 2) for i in range(count)])
        for op in ("all_gather_matmul", "matmul_reduce_scatter"):
            with self.subTest(op):
                words = ["run", op, "--a", folder / "a.npy", "--b", folder / "b.npy", "--out"]
                sh(TOOL, *map(str, words), folder / "here.npy", "--ranks", "4")
                code, out = self.hosts.ended(self.hosts.start(4, *words, folder / "there.npy", program=TOOL), 100)
                self.assertEqual(code, 0, out)
                self.assertRegex(out, r"algorithm (native|pipelined) \(rows cross between 2 hosts")
                self.assertEqual((folder / "there.npy").read_bytes(), (folder / "here.npy").read_bytes())

    def test_run_says_what_needs_shared_memory(self):
        if TOOL is None:
            self.skipTest("the tool is not built")
        a = self.hosts.folder / "a.npy"
        cli_tool.write_npy(a, [8, 4], [0.0] * 32)
        out = self.hosts.folder / "out.npy"
        words = ["run", "low_contention_all_gather", "--a", a, "--out", out]
        _, text = self.hosts.ended(self.hosts.start(4, *words, program=TOOL), 100)
        self.assertIn("the ranks of group 'run' are on 2 hosts and share no memory", text)
        self.assertFalse(out.exists())

    def begin_loop(self, *arguments):
        process = self.hosts.start(4, "loop", 60, *arguments, environment={"TANDEM_OP_TIMEOUT_MS": "4000"})
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(process.stdout), daemon=True)
        self.reader.start()
        self.wait_until(lambda: sum("runs" in line for line in self.lines) == 4, 90)
        return process

    def wait_until(self, condition, seconds):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, "".join(self.lines))
            time.sleep(0.05)

    def end_loop(self, process, *named):
        """All ranks end by themselves, and say why. mpirun may wait for ever for a daemon that it does not reach."""
        self.wait_until(lambda: not self.hosts.pids_of_ranks(0) + self.hosts.pids_of_ranks(1), 60)
        time.sleep(0.5)  # for what they have printed
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.hosts.close()
        self.reader.join(10)
        process.stdout.close()
        text = "".join(self.lines)
        self.assertNotIn("all right", text)
        for pattern, count in named:
            self.assertGreaterEqual(len(re.findall(pattern, text)), count, text)

    def test_a_killed_rank_is_named_on_both_hosts(self):
        process = self.begin_loop(3)
        self.end_loop(process, (r"hosts_rank: .*(rank 1|rank 3)", 3))

    def test_a_killed_host_is_named(self):
        process = self.begin_loop()
        for pid in self.hosts.pids_of_ranks(1):
            os.kill(pid, signal.SIGKILL)
        self.end_loop(process, (r"hosts_rank: .*rank [23]", 2))

    def test_a_cut_link_is_named(self):
        process = self.begin_loop()
        self.hosts.cut()
        self.end_loop(process, (r"hosts_rank: .*rank \d of another host|hosts_rank: .*rank \d on another host", 1))

    def test_a_slow_link_is_hidden(self):
        """No figure is asserted: a machine's time is not a test's affair. It prints them."""
        try:
            self.hosts.shape("tbf", "rate", "1gbit", "burst", "256kb", "latency", "100ms")
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            self.skipTest(f"no traffic control here: {getattr(error, 'stderr', error)}")
        code, out = self.hosts.ended(self.hosts.start(4, "time", 512, 512, 512, 3), 120)
        self.assertEqual(code, 0, out)
        rows = json.loads(re.search(r"\[\{.*\}\]", out).group())
        print(json.dumps(rows))
        self.assertEqual({row["op"] for row in rows}, set(OPS))


if __name__ == "__main__":
    RANK = sys.argv.pop(1)
    if len(sys.argv) > 1 and pathlib.Path(sys.argv[1]).exists():
        TOOL = sys.argv.pop(1)
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
