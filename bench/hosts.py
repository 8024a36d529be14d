#!/usr/bin/env python3
"""Serial and pipelined ops of a group on two hosts, which are network namespaces with a link of a given rate.

hosts.py HOSTS_RANK [--ranks W] [--rate RATE] [--sizes M,N,K...] [--iterations N] [--out FILE]

HOSTS_RANK is build/release/tests/hosts_rank. Both algorithms take turns in one run over Open MPI. Prints one JSON object an op
and size, and adds it to FILE: medians of rank 0 in ms, and the ms that the bytes of one direction take at the link's rate.
Needs what tests/dist/hosts_test.py needs, and tc.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/dist"))

import hosts_test

BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def machine():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {len(os.sched_getaffinity(0))} cores"
    return platform.machine()


def crossing_ms(row, ranks, rate):
    """Rows that a host sends to the other: its own of a gather, the other's of a scatter."""
    number, unit = re.fullmatch(r"([0-9.]+)([kmg]bit)", rate).groups()
    width = row["k"] if row["op"] == "all_gather_matmul" else row["n"]
    return 8e3 * (row["m"] / 2 * width * 4) / (float(number) * BITS[unit])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hosts_rank")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--sizes", nargs="+", default=["2048,256,2048"])
    parser.add_argument("--iterations", type=int, default=7)
    parser.add_argument("--out", type=pathlib.Path)
    flags = parser.parse_args()
    hosts_test.RANK = str(pathlib.Path(flags.hosts_rank).resolve())
    reason = hosts_test.why_not()
    if reason:
        sys.exit(f"hosts.py: {reason}")
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
    for size in flags.sizes:
        hosts = hosts_test.TwoHosts()
        try:
            hosts.shape("tbf", "rate", flags.rate, "burst", "256kb", "latency", "200ms")
            process = hosts.start(flags.ranks, "time", *size.split(","), flags.iterations)
            code, out = hosts.ended(process, 600)
        finally:
            hosts.close()
        if code != 0:
            sys.exit(f"hosts.py: {out}")
        for row in json.loads(re.search(r"\[\{.*\}\]", out).group()):
            row |= {"ranks": flags.ranks, "hosts": 2, "dtype": "f32", "rate": flags.rate,
                    "crossing_ms": round(crossing_ms(row, flags.ranks, flags.rate), 2),
                    "speedup": round(row["serial_ms"] / row["pipelined_ms"], 3), "iterations": flags.iterations,
                    "load_average": round(os.getloadavg()[0], 2), "machine": machine(), "commit": commit.stdout.strip(),
                    "command": " ".join(["bench/hosts.py", *sys.argv[1:]])}
            print(json.dumps(row, sort_keys=True))
            if flags.out:
                with flags.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
