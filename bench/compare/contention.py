#!/usr/bin/env python3
"""What a product pays for a collective that runs beside it on another stream: NCCL, PyTorch's low-contention ops, tandem's.

torchrun --nproc-per-node G contention.py [--mib 1,2,4,8,16,32,64] [--out FILE]

MiB a rank are those of the all-gather's input and of the reduce-scatter's output. "symmetric" says that the input lies in
symmetric memory, which the op reads in place; that is done outside of the times. "tandem" is its ordinary collective.

Each side is first compared with NCCL on poisoned outputs; a wrong one is not timed, and the exit code is 1. Then all sides
take turns in each round, eager, with a cold L2. Beside the product a collective runs again and again on another stream: it
begins before the product, and the last one ends behind it; where that failed, the side has no figures. One JSON object a
collective and size; for each of its "sides"

    t_alone_us          the collective alone
    completed           how many collectives the product's time had room for: parts count by their share of the time
    t_beside_us         the mean time of a collective meanwhile
    ratio               that over t_alone_us
    t_product_us        the product beside the collectives
    product_ratio       that over the product alone, "t_product_alone_us" of the row
    host_us             how long a call of the collective keeps the host

Times are medians over rounds of the slowest rank.
"""
import itertools
import math
import statistics
import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import tandem
import tandem.torch
from torch_rounds import (Rounds, about_run, append_rows, gpu_facts, row_arguments, scatter_bound, start_gpu_rank,
                          wrong_elements)

COLUMNS = 4096  # of a collective's tensors
LEAD_US = 40  # by which the first collective begins before the product
CYCLES_PER_US = 2000  # of a GPU's sleep, at its highest clock


def rows_of(mib):
    return mib * 2 ** 20 // (COLUMNS * torch.bfloat16.itemsize)


def symmetric_like(bench, tensor):
    """A copy in PyTorch's symmetric memory."""
    copy = symm_mem.empty(*tensor.shape, dtype=tensor.dtype, device=tensor.device)
    symm_mem.rendezvous(copy, bench.group)
    return copy.copy_(tensor)


def in_torch(op, *arguments):
    """A call of one of PyTorch's low-contention ops, which run on a stream of their own, and its result."""
    held = {}

    def call():
        held["out"] = torch.ops._c10d_functional.wait_tensor(op(*arguments))
    return call, lambda: held["out"]


def gather_sides(bench, group, mib):
    """(allowed errors, need, {name: (call, result)}): the all-gather by everyone."""
    torch.manual_seed(100 + bench.rank)
    shard = torch.randn(rows_of(mib), COLUMNS, device=bench.device, dtype=torch.bfloat16)
    symmetric = tandem.symm.empty(list(shard.shape), torch.bfloat16, group=group)
    handle = tandem.symm.rendezvous(symmetric, group=group)
    symmetric.copy_(shard)
    need = torch.empty(bench.world * shard.shape[0], COLUMNS, device=bench.device, dtype=torch.bfloat16)
    dist.all_gather_into_tensor(need, shard)
    outs = [torch.empty_like(need) for _ in range(4)]
    low = torch.ops.symm_mem._low_contention_all_gather
    return torch.zeros((), device=bench.device), need, {
        "nccl": (lambda: dist.all_gather_into_tensor(outs[0], shard), lambda: outs[0]),
        "torch low contention": in_torch(low, shard, bench.group),
        "torch low contention, symmetric": in_torch(low, symmetric_like(bench, shard), bench.group),
        "tandem": (lambda: tandem.all_gather(shard, group=group, out=outs[1]), lambda: outs[1]),
        "tandem low contention": (
            lambda: tandem.low_contention_all_gather(shard, group=group, out=outs[2]), lambda: outs[2]),
        "tandem low contention, symmetric": (
            lambda: tandem.low_contention_all_gather(symmetric, group=group, out=outs[3], input_handle=handle),
            lambda: outs[3]),
    }


def scatter_sides(bench, group, mib):
    """The same of the reduce-scatter. tandem's form reads every input in place, so there is no symmetric one."""
    torch.manual_seed(100 + bench.rank)
    whole = torch.randn(bench.world * rows_of(mib), COLUMNS, device=bench.device, dtype=torch.bfloat16)
    need = torch.empty(rows_of(mib), COLUMNS, device=bench.device, dtype=torch.bfloat16)
    dist.reduce_scatter_tensor(need, whole)
    outs = [torch.empty_like(need) for _ in range(3)]
    low = torch.ops.symm_mem._low_contention_reduce_scatter
    return scatter_bound(whole, need, bench.world), need, {
        "nccl": (lambda: dist.reduce_scatter_tensor(outs[0], whole), lambda: outs[0]),
        "torch low contention": in_torch(low, whole, "sum", bench.group),
        "torch low contention, symmetric": in_torch(low, symmetric_like(bench, whole), "sum", bench.group),
        "tandem": (lambda: tandem.reduce_scatter(whole, group=group, out=outs[1]), lambda: outs[1]),
        "tandem low contention": (
            lambda: tandem.low_contention_reduce_scatter(whole, group=group, out=outs[2]), lambda: outs[2]),
    }


SIDES = {"all_gather": gather_sides, "reduce_scatter": scatter_sides}


def check(bench, allowed, need, call, result):
    """Wrong elements on all ranks together, on a poisoned output."""
    call()
    torch.cuda.synchronize()
    result().fill_(float("nan"))
    call()
    torch.cuda.synchronize()
    wrong = torch.tensor([wrong_elements(result(), need, allowed)], device=bench.device)
    dist.all_reduce(wrong)
    return wrong.item()


class Beside:
    """A product, and collectives on another stream."""

    def __init__(self, bench, m, n, k):
        self.bench = bench
        self.side = torch.cuda.Stream()
        a = torch.randn(m, k, device=bench.device, dtype=torch.bfloat16)
        b = torch.randn(n, k, device=bench.device, dtype=torch.bfloat16).t()
        out = torch.empty(m, n, device=bench.device, dtype=torch.bfloat16)
        self.product = lambda: torch.mm(a, b, out=out)

    def time_once(self, call, count, hold_us):
        """(us of the product, collectives completed meanwhile, whether they ran all the time)."""
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.bench.start_together(int(hold_us * CYCLES_PER_US))
        self.side.wait_stream(torch.cuda.current_stream())
        torch.cuda._sleep(LEAD_US * CYCLES_PER_US)
        start.record()
        self.product()
        end.record()
        with torch.cuda.stream(self.side):
            events[0].record()
            for event in events[1:]:
                call()
                event.record()
        torch.cuda.current_stream().wait_stream(self.side)
        torch.cuda.synchronize()
        t_product = start.elapsed_time(end) * 1e3
        at = [start.elapsed_time(event) * 1e3 for event in events]  # behind the product's start
        completed = sum(max(0.0, min(ended, t_product) - max(began, 0.0)) / (ended - began)
                        for began, ended in itertools.pairwise(at))
        return [t_product, completed, float(count == 0 or (at[0] <= 0 and at[-1] >= t_product))]


def time_sides(bench, beside, calls, rounds):
    """The row's figures. The numbers of collectives are as many as the product lasts, and more where that was too few."""
    alone, host = bench.alternate(calls, 1, rounds), {name: bench.host_us(call, bursts=3) for name, call in calls.items()}
    alone = {name: times[0] for name, times in alone.items()}
    t_product = statistics.median(bench.slowest([beside.time_once(None, 0, 500)[0] for _ in range(5)]))
    counts = {name: math.ceil(1.6 * (t_product + LEAD_US) / us) + 2 for name, us in alone.items()}
    for _ in range(3):
        hold_us = 500 + 1.2 * max(host[name] * count for name, count in counts.items())
        taken = {name: [] for name in (None, *calls)}
        for _ in range(rounds):
            for name in bench.order.sample(list(taken), len(taken)):
                taken[name].append(beside.time_once(calls.get(name), counts.get(name, 0), hold_us))
        few = [name for name, times in taken.items() if -bench.slowest([-min(one[2] for one in times)])[0] < 1.0]
        if not few:
            break
        counts |= {name: 2 * counts[name] for name in few}
    t_products = {name: statistics.median(bench.slowest([one[0] for one in times])) for name, times in taken.items()}
    t_alone, sides = t_products.pop(None), {}
    for name in calls:
        # The rank whose collectives were slower has the fewer.
        completed = statistics.median(-fewest for fewest in bench.slowest([-one[1] for one in taken[name]]))
        if name in few:
            continue
        us, t_beside = t_products[name], t_products[name] / completed
        sides[name] = {"t_alone_us": alone[name], "t_beside_us": t_beside, "ratio": t_beside / alone[name],
                       "completed": completed, "t_product_us": us, "product_ratio": us / t_alone, "host_us": host[name]}
    return {"t_product_alone_us": t_alone, "sides": sides,
            "why_not": {name: "the collectives did not last as long as the product" for name in few}}


def measure(bench, group, beside, op, mib, rounds):
    allowed, need, sides = SIDES[op](bench, group, mib)
    wrong = {name: check(bench, allowed, need, call, result) for name, (call, result) in sides.items()}
    for name, count in wrong.items():
        if count:
            bench.say(f"WRONG: {op} {mib} MiB {name}: {count} elements")
    calls = {name: call for name, (call, _) in sides.items() if wrong[name] == 0}
    figures = time_sides(bench, beside, calls, rounds)
    group.check()
    bench.say(op, mib, "MiB, product alone", round(figures["t_product_alone_us"], 1), figures["why_not"] or "")
    for name, one in figures["sides"].items():
        bench.say(f"    {name:34}" + ", ".join(f"{key} {value:.3f}" for key, value in one.items()))
    return {"op": op, "mib": mib, "wrong": wrong, **figures}


def main():
    parser = row_arguments(__doc__)
    parser.add_argument("--mib", default="1,2,4,8,16,32,64", help="sizes, in MiB a rank")
    parser.add_argument("--product", default="4096x7168x8192", help="MxNxK of the product, bf16")
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    start_gpu_rank()
    bench = Rounds()
    group = tandem.torch.group_of(dist.group.WORLD, bench.device)
    m, n, k = map(int, args.product.split("x"))
    beside = Beside(bench, m, n, k)
    about = about_run(args) | {"beside": "mm", "m": m, "n": n, "k": k, "dtype": "bf16", "world": bench.world}
    any_wrong = False
    for mib in map(int, args.mib.split(",")):
        for op in SIDES:
            row = measure(bench, group, beside, op, mib, args.rounds)
            any_wrong |= any(row["wrong"].values())
            if bench.rank == 0 and args.out:
                append_rows(args.out, [row], gpu_facts() | about)
    dist.barrier()
    tandem.torch.close_groups()
    dist.destroy_process_group()
    return int(any_wrong)


if __name__ == "__main__":
    sys.exit(main())
