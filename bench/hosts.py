#!/usr/bin/env python3
"""Times of the ops of a group on several hosts, which are two network namespaces.

hosts.py HOSTS_RANK [--ranks W...] [--hosts H] [--rate-mbit R] [--delay-ms D] [--sizes M,N,K...] [--iterations N] [--out FILE]

HOSTS_RANK is build/release/tests/hosts_rank. All algorithms take turns in one run over Open MPI. Prints one JSON object an op and
size, and adds it to FILE: medians in ms of the rank that ends last, and the ms that the bytes of one direction take at the link's rate.
With --rate-mbit 0 the link is that of the namespaces, as fast as they are. More hosts than two differ in their names alone.
Needs what tests/dist/hosts_test.py needs, and for a link of some rate /dev/net/tun (bench/delayed_link.py).
"""

import argparse
import itertools
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/dist"))

import delayed_link
import hosts_test


class DistantHosts(hosts_test.TwoHosts):
    """Two hosts whose link has a rate and a delay."""

    def __init__(self, rate_mbit, delay_ms):
        super().__init__()
        self.carrier = subprocess.Popen([sys.executable, str(ROOT / "bench/delayed_link.py"), *self.names, str(rate_mbit),
                                         str(delay_ms)], stdout=subprocess.PIPE, text=True)
        if self.carrier.stdout.readline() != "ready\n":
            self.close()
            sys.exit("hosts.py: delayed_link.py did not begin")
        # As for links with a delay: buffers hold what is under way, and a connection that was idle keeps its rate.
        for name in self.names:
            hosts_test.sh("ip", "netns", "exec", name, "sysctl", "-q", "net.ipv4.tcp_slow_start_after_idle=0",
                          "net.ipv4.tcp_wmem=4096 8388608 16777216", "net.ipv4.tcp_rmem=4096 8388608 16777216")
        self.link, self.addresses = delayed_link.NAME, list(delayed_link.ADDRESSES)

    def close(self):
        self.carrier.kill()
        self.carrier.wait()
        super().close()


def machine():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {len(os.sched_getaffinity(0))} cores"
    return platform.machine()


def crossing_ms(row, rate_mbit, delay_ms):
    """Rows that one of two hosts sends to the other: its own of a gather, the other's of a scatter, of an all-reduce both."""
    width = row["k"] if row["op"] == "all_gather_matmul" else row["n"]
    times = 2 if row["op"] == "matmul_all_reduce" else 1
    return times * (8 * (row["m"] / 2 * width * 4) / (rate_mbit * 1e3) + delay_ms)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hosts_rank")
    parser.add_argument("--ranks", type=int, nargs="+", default=[4])
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--rate-mbit", type=float, default=1000)
    parser.add_argument("--delay-ms", type=float, default=0, help="one way")
    parser.add_argument("--sizes", nargs="+", default=["2048,256,2048"])
    parser.add_argument("--iterations", type=int, default=7)
    parser.add_argument("--out", type=pathlib.Path)
    flags = parser.parse_args()
    hosts_test.RANK = str(pathlib.Path(flags.hosts_rank).resolve())
    reason = hosts_test.why_not()
    if reason:
        sys.exit(f"hosts.py: {reason}")
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
    for ranks, size in itertools.product(flags.ranks, flags.sizes):
        hosts = DistantHosts(flags.rate_mbit, flags.delay_ms) if flags.rate_mbit else hosts_test.TwoHosts()
        try:
            process = hosts.start(ranks, "time", *size.split(","), flags.iterations, hosts=flags.hosts)
            code, out = hosts.ended(process, 600)
        finally:
            hosts.close()
        rows = re.search(r"\[\{.*\}\]", out)
        if code != 0 or rows is None:
            sys.exit(f"hosts.py: {out}")
        for row in json.loads(rows.group()):
            row |= {"ranks": ranks, "hosts": flags.hosts, "dtype": "f32", "rate_mbit": flags.rate_mbit,
                    "delay_ms": flags.delay_ms, "iterations": flags.iterations,
                    "speedup": round(row["serial_ms"] / row["pipelined_ms"], 3),
                    "load_average": round(os.getloadavg()[0], 2), "machine": machine(), "commit": commit.stdout.strip(),
                    "command": " ".join(["bench/hosts.py", *sys.argv[1:]])}
            if flags.rate_mbit and flags.hosts == 2:
                row["crossing_ms"] = round(crossing_ms(row, flags.rate_mbit, flags.delay_ms), 2)
            print(json.dumps(row, sort_keys=True))
            if flags.out:
                with flags.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
