#!/usr/bin/env python3
"""Products by 4-bit weights on one CPU core: tandem beside PyTorch's own ops.

four_bit_by_torch.py --tandem build/cpu/bin/tandem [--m 1 8 64 128] [--n 4096 --k 4096] [--group-size 32 128 0] [--out FILE]

`tandem bench matmul_4bit` runs in a process of its own, and PyTorch in this one. They take turns, pinned to one core, with one
thread. PyTorch's ops are
    dyn_quant   aten._dyn_quant_matmul_4bit: rows are rounded to int8, as tandem does; f32
    int4pack    aten._weight_int4pack_mm_for_cpu: weights alone are rounded, in groups; bf16 and f32
Group size 0 is all of k. What an op refuses is in the row with its reason. Before an op is timed its result is compared with
f64 of the rounded weights. Prints one JSON object for each m and group size, and adds it to FILE: medians over alternations.
Keys that end in "cpu" count processor time, which says more where others use the machine.
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import torch

MOST_ERROR = {"dyn_quant_f32": 0.02, "int4pack_f32": 0.02, "int4pack_bf16": 0.02}


def quantized(weight, group):
    """Nibbles q (0 to 15, of offset 8) and scales [n, k / group], symmetric."""
    n, k = weight.shape
    grouped = weight.view(n, k // group, group)
    scales = grouped.abs().amax(-1) / 7
    q = torch.clamp(torch.round(grouped / scales.unsqueeze(-1)), -8, 7) + 8
    return q.view(n, k).to(torch.int32), scales


def dequantized(q, scales, group):
    n, k = q.shape
    return ((q.double() - 8).view(n, k // group, group) * scales.double().unsqueeze(-1)).view(n, k)


def dyn_quant(q, scales, group, _):
    n, k = q.shape
    packed = (q[:, 0::2] | (q[:, 1::2] << 4)).to(torch.uint8)
    # Scales of groups have to be bf16.
    kept = scales if group == k else scales.to(torch.bfloat16)
    weights = torch.ops.aten._dyn_quant_pack_4bit_weight(packed, kept, None, group, k, n)
    return lambda x: torch.ops.aten._dyn_quant_matmul_4bit(x, weights, group, k, n)


def int4pack(q, scales, group, dtype):
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(q, 1)
    # Of each group the scale, and what a weight of 8 stands for.
    scales_and_zeros = torch.stack((scales.t(), torch.zeros_like(scales.t())), -1).to(dtype).contiguous()
    return lambda x: torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, group, scales_and_zeros)


OPS = {"dyn_quant_f32": (dyn_quant, torch.float32), "int4pack_f32": (int4pack, torch.float32),
       "int4pack_bf16": (int4pack, torch.bfloat16)}


def time_calls(call, enough_s):
    """Medians of as many calls as fit, but at least one, in us: by the clock, and by processor time."""
    times = []
    begin = time.perf_counter()
    while not times or time.perf_counter() - begin < enough_s:
        start, cpu_start = time.perf_counter(), time.process_time()
        call()
        times.append(((time.perf_counter() - start) * 1e6, (time.process_time() - cpu_start) * 1e6))
    return [statistics.median(column) for column in zip(*times)]


class Case:
    """All of PyTorch's ops on one problem."""

    def __init__(self, m, n, k, group):
        torch.manual_seed(1)
        self.m, self.group = m, group
        x = torch.rand(m, k) - 0.5
        self.calls, self.rows, self.times = {}, {}, {}
        q, scales = quantized(torch.rand(n, k) - 0.5, group)
        need = x.double() @ dequantized(q, scales, group).t()
        self.matmul = (x, torch.rand(k, n))
        for name, (prepare, dtype) in OPS.items():
            operand = x.to(dtype)
            try:
                op = prepare(q, scales, group, dtype)
                got = op(operand)
            except RuntimeError as error:
                self.rows[name] = {"why_not": str(error).splitlines()[0]}
                continue
            error = ((got.double() - need).norm() / need.norm()).item()
            if not error <= MOST_ERROR[name]:
                self.rows[name] = {"why_not": f"its result is off by {error}"}
                continue
            self.rows[name] = {"error": error}
            self.calls[name] = lambda op=op, operand=operand: op(operand)
            self.times[name] = []
        self.calls["f32"] = lambda: torch.mm(*self.matmul)
        self.times["f32"], self.rows["f32"] = [], {}
        self.own = []

    def turn(self, enough_s):
        for name, call in self.calls.items():
            self.times[name].append(time_calls(call, enough_s))

    def row(self):
        first = self.own[0]
        for name, times in self.times.items():
            for i, end in enumerate(("", "_cpu")):
                own_us = [row[f"t{end}_us"] for row in self.own]
                ratios = [theirs[i] / ours for theirs, ours in zip(times, own_us)]
                self.rows[name].update({f"t{end}_us": statistics.median(one[i] for one in times),
                                        f"times_tandem{end}": statistics.median(ratios),
                                        f"times_tandem{end}_least": min(ratios), f"times_tandem{end}_most": max(ratios)})
        return {"op": "matmul_4bit", **{key: first[key] for key in ("m", "n", "k", "group_size")},
                **{key: statistics.median(row[key] for row in self.own)
                   for key in ("t_us", "t_cpu_us", "t_f32_us", "t_f32_cpu_us")},
                "torch": self.rows, **{key: first[key] for key in ("cpu", "cores", "commit")}}


def run_tandem(args, group):
    """Its rows by m."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "rows.json"
        command = [args.tandem, "bench", "matmul_4bit", "--m", ",".join(map(str, args.m)), "--n", args.n, "--k", args.k,
                   "--group-size", group, "--iterations", args.iterations, "--json", file]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
        return {row["m"]: row for row in map(json.loads, file.read_text().splitlines())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", default="tandem", help="the command")
    parser.add_argument("--m", type=int, nargs="+", default=[1, 8, 64, 128])
    parser.add_argument("--n", type=int, default=4096)
    parser.add_argument("--k", type=int, default=4096)
    parser.add_argument("--group-size", type=int, nargs="+", default=[32, 128, 0])
    parser.add_argument("--iterations", type=int, default=10, help="of tandem in each alternation")
    parser.add_argument("--seconds", type=float, default=0.2, help="for each of PyTorch's ops in each alternation")
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--out", help="file that gets the rows")
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.core})
    torch.set_num_threads(1)
    for group in args.group_size:
        cases = [Case(m, args.n, args.k, group or args.k) for m in args.m]
        for i in range(args.alternations):
            rows = run_tandem(args, group) if i % 2 == 0 else None
            for case in cases:
                case.turn(args.seconds)
            rows = rows or run_tandem(args, group)
            for case in cases:
                case.own.append(rows[case.m])
        for case in cases:
            line = json.dumps({**case.row(), "torch_version": torch.__version__,
                               "torch_isa": torch.backends.cpu.get_cpu_capability(), "alternations": args.alternations,
                               "on_core": args.core, "kernel": platform.release()})
            print(line, flush=True)
            if args.out:
                with open(args.out, "a", encoding="utf-8") as file:
                    file.write(line + os.linesep)


if __name__ == "__main__":
    main()
