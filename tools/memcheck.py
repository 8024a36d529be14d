#!/usr/bin/env python3
"""Runs the fused ops under NVIDIA's memory checker, all ranks as threads on one GPU, several processes at a time.

    tools/memcheck.py --tandem build/release/bin/tandem [--out rows.json]

Each case is a process: a sweep of `tandem check`, or one problem of it where a sweep has no sizes that are large enough; their
results are compared too. A case passes if they are right and the checker has seen no error. Prints the cases that do not,
appends one JSON row to --out, and exits with 1 if there is one. The ranks go in step: where a thread asks the driver whether
its stream is done, the checker waits for all that runs on the GPU, and no other thread can launch what that waits for.
"""
import argparse
import concurrent.futures
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time

RANKS = (2, 3, 4, 8)
# Of the whole op, m x k and n. Rows that end inside a tile, a chunk of them and a few columns more; whole tiles, which travel
# in pieces; shards of more than what ranks push into each other's boxes.
RAGGED, TILES, LARGE = (600, 264, 576), (1024, 512, 1344), (2048, 1040, 640)
SCALES = ("tensor", "row", "block")  # of f8


def sweeps():
    ranks = ",".join(map(str, RANKS))
    for op, dtype, algorithm in itertools.product(("all_gather_matmul", "matmul_reduce_scatter"), ("bf16", "f16", "f32"),
                                                  ("serial", "pipelined")):
        yield [op, "--ranks", ranks, "--dtype", dtype, "--algorithm", algorithm]
    for scales, algorithm in itertools.product(SCALES, ("serial", "pipelined")):
        f8 = ["--ranks", ranks, "--dtype", "f8e4m3", "--scales", scales, "--algorithm", algorithm]
        yield ["all_gather_matmul", *f8]
        if scales != "block":
            yield ["matmul_reduce_scatter", *f8]


def problems():
    for ranks, algorithm in itertools.product(RANKS, ("serial", "pipelined", "native")):
        shapes = (RAGGED, TILES) if algorithm == "native" else (LARGE,)
        for (m, k, n), (dtype, extra) in itertools.product(shapes, (("bf16", "b=column"), ("f16", "gathered=1"))):
            yield f"all_gather_matmul,a={m}x{k},n={n},dtype={dtype},dim=0,ranks={ranks},algorithm={algorithm},{extra},seed=5"
        if algorithm == "native":
            for scales in SCALES:
                yield (f"all_gather_matmul,a=600x272,n=576,dtype=f8e4m3,scales={scales},dim=0,ranks={ranks},algorithm=native,"
                       "b=column,seed=5")
            # Tiles that owners share, and tiles by owners.
            for op, m, kind in itertools.product(("matmul_reduce_scatter,dim=0", "matmul_all_reduce"), (200, 600),
                                                 ("bf16,b=column", "f16", "f8e4m3,scales=row,b=column")):
                yield f"{op},a={m}x{272 * ranks},n=576,dtype={kind},ranks={ranks},algorithm=native,seed=7"
        else:
            m, k, n = LARGE
            yield f"matmul_reduce_scatter,a={m}x{k},n={n},dtype=bf16,dim=0,ranks={ranks},algorithm={algorithm},reduce=avg,seed=7"


def chosen(cases, count):
    """`count` of them, spread evenly: neighbours differ in one thing only."""
    count = min(count, len(cases))
    return [cases[i * len(cases) // count] for i in range(count)]


def unknown_first(cases, path):
    """Cases that are clean in the rows of a file come last."""
    with open(path, encoding="utf-8") as file:
        clean = {row["check"] for line in file for row in json.loads(line)["rows"] if is_clean(row)}
    return sorted(cases, key=lambda case: " ".join(case) in clean)


def run(args, case, end):
    """What came of a case; None if there was no time for it before `end`."""
    begin = time.monotonic()
    if begin >= end:
        return None
    command = [args.sanitizer, "--tool", "memcheck", args.tandem, "check", "--backend", "cuda", "--loopback", "--in-step",
               *case]
    # Kernels take long to be made ready; but tandem is to say itself who waited for whom.
    environment = {**os.environ, "TANDEM_OP_TIMEOUT_MS": str(int(args.timeout * 700))}
    if "native" not in " ".join(case):
        environment["TANDEM_NATIVE_KERNEL"] = "none"  # or all of them would be made ready
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
                          start_new_session=True) as process:
        try:
            text, code = process.communicate(timeout=min(args.timeout, end - begin))[0], process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the checker and what it checks
            text, code = process.communicate()[0], -1
            if time.monotonic() >= end:
                return None
    summary = re.search(r"ERROR SUMMARY: (\d+) error", text)
    ran = re.search(r"total: (\d+) cases run, 0 skipped, of \1; 0 wrong", text)  # all of them
    return {"check": " ".join(case), "code": code, "errors": int(summary.group(1)) if summary else None,
            "ran": int(ran.group(1)) if ran else 0, "seconds": round(time.monotonic() - begin, 1), "text": text}


def said(*command):
    """The last line that a command prints; "" if there is no such command."""
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


def is_clean(row):
    return row["code"] == 0 and row["errors"] == 0 and row["ran"] > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tandem", required=True)
    parser.add_argument("--sanitizer", default="compute-sanitizer")
    parser.add_argument("--cases", type=int, default=10_000, help="so many of them, spread evenly")
    parser.add_argument("--known", metavar="FILE", help="an earlier --out: what was clean there comes last")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="every Nth of these, from the Ith on: a GPU's share")
    parser.add_argument("--at-a-time", type=int, default=3, help="on one GPU; more do not get more done")
    parser.add_argument("--timeout", type=float, default=200, help="seconds a case")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="all is over by then: what has not ended counts as not run")
    parser.add_argument("--commit", default="")
    parser.add_argument("--out", help="append a JSON row here")
    args = parser.parse_args()
    cases = chosen([*(["--problem", problem] for problem in problems()), *sweeps()], args.cases)
    if args.known:
        cases = unknown_first(cases, args.known)
    part, parts = map(int, args.part.split("/"))
    cases = cases[part::parts]
    end = time.monotonic() + args.seconds
    with concurrent.futures.ThreadPoolExecutor(args.at_a_time) as pool:
        rows = [row for row in pool.map(lambda case: run(args, case, end), cases) if row]
    for row in rows:
        text = row.pop("text")
        if not is_clean(row):
            print(json.dumps(row), *text.splitlines()[-15:], sep="\n", flush=True)
    total = {"tool": "memcheck", "gpu": said("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"),
             "sanitizer": said(args.sanitizer, "--version"), "commit": args.commit, "command": " ".join(os.path.basename(word) if os.path.isabs(word) else word for word in sys.argv),
             "of": len(cases), "cases": len(rows), "clean": sum(map(is_clean, rows)),
             "calls": sum(row["ran"] for row in rows), "rows": rows}
    print(f"memcheck: {total['clean']} of {total['cases']} cases clean, {total['calls']} calls, {len(cases) - len(rows)} not run")
    if args.out:
        with open(args.out, "a", encoding="utf-8") as out:
            out.write(json.dumps(total) + "\n")
    return 0 if rows and total["clean"] == total["cases"] else 1


if __name__ == "__main__":
    sys.exit(main())
