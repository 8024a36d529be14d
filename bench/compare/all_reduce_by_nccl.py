#!/usr/bin/env python3
"""What matmul + all-reduce takes by cuBLAS and NCCL, beside the product alone: a peer of `tandem bench matmul_all_reduce`.

torchrun --nproc-per-node G all_reduce_by_nccl.py [--m 64 256 ...] [--out FILE]

Prints one JSON object a size, and adds it to FILE: medians over rounds of the slowest rank, in us, cold L2, bf16.
"""
import argparse
import json
import os
import statistics
import sys

import torch
import torch.distributed as dist


def slowest(us, device):
    most = torch.tensor([us], device=device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return most.item()


def measure(m, n, k, rounds, device):
    """Median times of the product, and of both. The first three rounds warm up."""
    a = torch.randn(m, k, device=device, dtype=torch.bfloat16)
    b = torch.randn(n, k, device=device, dtype=torch.bfloat16).t()
    out = torch.empty(m, n, device=device, dtype=torch.bfloat16)
    flush = torch.empty(256 << 20, dtype=torch.uint8, device=device)
    meeting = torch.zeros(1, device=device)

    def product():
        torch.mm(a, b, out=out)

    def both():
        torch.mm(a, b, out=out)
        dist.all_reduce(out)
    times = {"t_gemm_us": [], "t_both_us": []}
    calls = [("t_gemm_us", product), ("t_both_us", both)]
    for step in range(rounds + 3):
        events = {}
        for name, call in calls if step % 2 else reversed(calls):
            flush.zero_()
            torch.cuda._sleep(1_000_000)  # time for the host to enqueue what comes
            dist.all_reduce(meeting)
            events[name] = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            events[name][0].record()
            call()
            events[name][1].record()
        torch.cuda.synchronize()
        for name, (begin, end) in events.items():
            us = slowest(begin.elapsed_time(end) * 1e3, device)
            if step >= 3:
                times[name].append(us)
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--m", type=int, nargs="+", default=[64, 256, 512, 1024, 2048, 4096, 8192])
    parser.add_argument("--n", type=int, default=8192)
    parser.add_argument("--k", type=int, default=7168)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out")
    args = parser.parse_args()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    dist.init_process_group("nccl", device_id=device)
    for m in args.m:
        row = {"op": "matmul_all_reduce", "by": "cuBLAS and NCCL", "m": m, "n": args.n, "k": args.k,
               "world": dist.get_world_size(), "gpu": torch.cuda.get_device_name(device),
               "torch": torch.__version__, "nccl": ".".join(map(str, torch.cuda.nccl.version())),
               "command": " ".join(["all_reduce_by_nccl.py", *sys.argv[1:]]),
               **measure(m, args.n, args.k, args.rounds, device)}
        if dist.get_rank() != 0:
            continue
        print(json.dumps(row), flush=True)
        if args.out:
            with open(args.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
