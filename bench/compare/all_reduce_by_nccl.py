#!/usr/bin/env python3
"""What matmul + all-reduce takes by cuBLAS and NCCL, beside the product alone: a peer of `tandem bench matmul_all_reduce`.

torchrun --nproc-per-node G all_reduce_by_nccl.py [--shapes 64..8192x8192x7168] [--out FILE]

Prints one JSON object a size, and adds it to FILE: medians over rounds of the slowest rank, in us, cold L2, bf16.
"""
import json
import sys

import torch
import torch.distributed as dist

from torch_rounds import SHAPES, Rounds, about_run, append_rows, gpu_facts, row_arguments, sizes_of, start_gpu_rank


def measure(bench, m, n, k, rounds):
    """Median times of the product, and of both. The first three rounds warm up."""
    a = torch.randn(m, k, device=bench.device, dtype=torch.bfloat16)
    b = torch.randn(n, k, device=bench.device, dtype=torch.bfloat16).t()
    out = torch.empty(m, n, device=bench.device, dtype=torch.bfloat16)

    def product():
        torch.mm(a, b, out=out)

    def both():
        torch.mm(a, b, out=out)
        dist.all_reduce(out)
    calls = {"t_gemm_us": product, "t_both_us": both}
    bench.alternate(calls, 1, 3)
    return {name: medians[0] for name, medians in bench.alternate(calls, 1, rounds).items()}


def main():
    parser = row_arguments(__doc__)
    parser.add_argument("--shapes", default="64..8192x8192x7168", help=SHAPES)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    start_gpu_rank()
    bench, about = Rounds(), about_run(args)
    for m, n, k in sizes_of(args.shapes):
        row = {"op": "matmul_all_reduce", "by": "cuBLAS and NCCL", "m": m, "n": n, "k": k, "world": bench.world,
               **measure(bench, m, n, k, args.rounds)}
        bench.say(json.dumps(row))
        if bench.rank == 0 and args.out:
            append_rows(args.out, [row], gpu_facts() | about)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
