#!/usr/bin/env python3
"""Alternates tandem's fused ops with PyTorch's and with cuBLAS + NCCL, in one run on the same tensors.

torchrun --nproc-per-node G against_torch.py [--shapes 64..16384x3584x8192] [--out FILE]

"tandem serial" and so on are calls of the package tandem with that algorithm, "tandem.torch" the ops of torch.ops.tandem,
which choose one. "torch native" reads symmetric memory, the others plain tensors. "product alone" and "nccl alone" are the
halves of "cublas + nccl". Before a variant is timed its result is compared with cuBLAS + NCCL on the poisoned output; a wrong
one is not timed, and the exit code is 1.

One JSON object a shape, op and mode (eager, graph). "medians_us" has for each variant the medians (us, slowest rank of each
round) of every alternation. "ratios" are to a peer or the product, "hidden" is the share of the communication that a variant
hides: 1 - (t - product alone) / nccl alone. Both are medians over alternations. "why_not" says which variants did not run.
"""
import collections
import dataclasses
import statistics
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import tandem
import tandem.torch
from torch_rounds import (SHAPES, Rounds, about_run, append_rows, gpu_facts, recorded, row_arguments, scatter_bound,
                          sizes_of, start_gpu_rank, wrong_elements)

PRODUCT, COLLECTIVE, SERIAL, DECOMPOSED = "product alone", "nccl alone", "cublas + nccl", "torch decomposed"
ALGORITHMS = "auto", "native", "pipelined", "serial"
# The rows a rank from which on PyTorch's native gather is asked: those of two of its tiles.
TORCH_NATIVE_ROWS = 256


class Tandem:
    """The fused ops of the package tandem, on the group of all ranks."""

    def __init__(self):
        self.group = tandem.torch.group_of(dist.group.WORLD, torch.device("cuda", torch.cuda.current_device()))
        self.reports = {}  # of each variant's last call

    def variants(self, op, a, b, like, algorithms, *scales, **options):
        """{name: (call, result)} for each algorithm, with an output of its own."""
        function, gathers = getattr(tandem, "fused_" + op), op.startswith("all_gather")

        def variant(name, algorithm):
            out = torch.empty_like(like)
            outs = [out] if gathers else out

            def run():
                self.reports[name] = function(
                    a, b, *scales, group=self.group, out=outs, algorithm=algorithm, **options).report
            return run, lambda: out
        return {name: variant(name, algorithm) for name, algorithm in (("tandem " + one, one) for one in algorithms)}

    def ran(self, names):
        return {name: self.reports[name].algorithm for name in names if name in self.reports}

    def synchronize(self):
        torch.cuda.current_stream().synchronize()
        self.group.check()

    def close(self):
        tandem.torch.close_groups()


@dataclasses.dataclass
class Case:
    """An op with sizes, and what can run it."""
    op: str
    sizes: tuple  # m, n, k of one rank's product
    reference: Callable  # cuBLAS + NCCL
    need: torch.Tensor  # the reference's result
    bound: Callable  # allowed errors, behind a call of the reference
    halves: dict  # {name: call}, of the reference
    variants: dict  # {name: (call, result)}
    why_not: dict  # {name: text} of variants that are not tried


def product_bound(need, k):
    """Two products of standard normal numbers, each rounded to bf16 once."""
    return 2 ** -7 * need.float().abs() + 2 ** -8 * k ** 0.5


def scaled_bound(need, k):
    """Two products of numbers that were rounded to f8 first, whose fast sums keep some 14 bits; scales are up to 2.25."""
    return 2 ** -7 * need.float().abs() + 2 ** -6 * k ** 0.5


def cases(bench, fused, m, n, k):
    """Gather and scatter of a layer: the down projection's k is the up projection's n."""
    world, device, bf16 = bench.world, bench.device, torch.bfloat16
    torch.manual_seed(7)
    b = torch.randn(n, k, device=device, dtype=bf16).t()
    torch.manual_seed(100 + bench.rank)
    a_shard = torch.randn(m // world, k, device=device, dtype=bf16)
    gathered = torch.empty(m, k, device=device, dtype=bf16)
    need = torch.empty(m, n, device=device, dtype=bf16)
    halves = {COLLECTIVE: lambda: dist.all_gather_into_tensor(gathered, a_shard),
              PRODUCT: lambda: torch.mm(gathered, b, out=need)}

    def gather_serially():
        dist.all_gather_into_tensor(gathered, a_shard)
        torch.mm(gathered, b, out=need)
    held, why_not = {}, {}

    def gather_in_torch():
        held["gather"] = torch.ops.symm_mem.fused_all_gather_matmul(a_shard, [b], 0, bench.group)[1][0]

    def gather_in_tandem():
        held["tandem gather"] = torch.ops.tandem.fused_all_gather_matmul(a_shard, [b], 0, bench.group)[1][0]
    variants = {DECOMPOSED: (gather_in_torch, lambda: held["gather"]),
                "tandem.torch": (gather_in_tandem, lambda: held["tandem gather"]),
                **fused.variants("all_gather_matmul", a_shard, b, need, ALGORITHMS)}
    if m // world >= TORCH_NATIVE_ROWS:
        symmetric = symm_mem.empty(m // world, k, dtype=bf16, device=device)
        symm_mem.rendezvous(symmetric, bench.group)
        symmetric.copy_(a_shard)

        def gather_natively():
            held["native gather"] = symm_mem._fused_all_gather_matmul_native(symmetric, b, bench.group)[1]
        variants["torch native"] = (gather_natively, lambda: held["native gather"])
    else:
        why_not["torch native"] = f"not tried below {TORCH_NATIVE_ROWS} rows a rank"
    yield Case("all_gather_matmul", (m, n, k), gather_serially, need, lambda: product_bound(need, k), halves, variants,
               why_not)

    x = torch.randn(m, n, device=device, dtype=bf16)
    w = torch.randn(k, n, device=device, dtype=bf16).t()
    whole = torch.empty(m, k, device=device, dtype=bf16)
    shard = torch.empty(m // world, k, device=device, dtype=bf16)
    halves = {COLLECTIVE: lambda: dist.reduce_scatter_tensor(shard, whole), PRODUCT: lambda: torch.mm(x, w, out=whole)}

    def scatter_serially():
        torch.mm(x, w, out=whole)
        dist.reduce_scatter_tensor(shard, whole)

    def scatter_in_torch():
        held["scatter"] = torch.ops.symm_mem.fused_matmul_reduce_scatter(x, w, "sum", 0, bench.group)

    def scatter_in_tandem():
        held["tandem scatter"] = torch.ops.tandem.fused_matmul_reduce_scatter(x, w, "sum", 0, bench.group)
    variants = {DECOMPOSED: (scatter_in_torch, lambda: held["scatter"]),
                "tandem.torch": (scatter_in_tandem, lambda: held["tandem scatter"]),
                **fused.variants("matmul_reduce_scatter", x, w, shard, ALGORITHMS)}
    yield Case("matmul_reduce_scatter", (m, k, n), scatter_serially, shard, lambda: scatter_bound(whole, shard, world),
               halves, variants, {"torch native": "PyTorch has no native scatter"})


def scaled_cases(bench, fused, m, n, k, scales):
    """The same of f8e4m3 into bf16 with fast sums, scaled as a whole ("tensor") or by rows and columns ("row")."""
    world, device = bench.world, bench.device
    f8, bf16 = torch.float8_e4m3fn, torch.bfloat16

    def scale(*sizes):
        return torch.rand(sizes if scales == "row" else (), device=device) + 0.5

    def product(a, b, a_scale, b_scale, out):
        torch._scaled_mm(a, b, a_scale, b_scale, out_dtype=bf16, use_fast_accum=True, out=out)
    torch.manual_seed(7)
    b, b_scale = torch.randn(n, k, device=device).to(f8).t(), scale(1, n)
    torch.manual_seed(100 + bench.rank)
    a, a_scale = torch.randn(m // world, k, device=device).to(f8), scale(m // world, 1)
    if scales == "tensor":
        dist.broadcast(a_scale, 0)
    gathered = torch.empty(m, k, device=device, dtype=f8)
    all_scales = torch.empty(m, 1, device=device) if scales == "row" else a_scale
    need = torch.empty(m, n, device=device, dtype=bf16)

    def gather():
        dist.all_gather_into_tensor(gathered.view(torch.uint8), a.view(torch.uint8))
        if scales == "row":
            dist.all_gather_into_tensor(all_scales, a_scale)

    def gather_serially():
        gather()
        product(gathered, b, all_scales, b_scale, need)
    halves = {COLLECTIVE: gather, PRODUCT: lambda: product(gathered, b, all_scales, b_scale, need)}
    held = {}
    arguments = (a, [b], a_scale, [b_scale], 0, bench.group, [None], [None], [bf16], [True])

    def gather_in_torch():
        held["gather"] = torch.ops.symm_mem.fused_all_gather_scaled_matmul(*arguments)[1][0]

    def gather_in_tandem():
        held["tandem gather"] = torch.ops.tandem.fused_all_gather_scaled_matmul(*arguments)[1][0]
    variants = {DECOMPOSED: (gather_in_torch, lambda: held["gather"]),
                "tandem.torch": (gather_in_tandem, lambda: held["tandem gather"]),
                **fused.variants("all_gather_scaled_matmul", a, b, need, ALGORITHMS,
                                 a_scale, b_scale, fast_accum=True)}
    yield Case("all_gather_scaled_matmul", (m, n, k), gather_serially, need, lambda: scaled_bound(need, k), halves,
               variants, {})

    x, x_scale = torch.randn(m, n, device=device).to(f8), scale(m, 1)
    w, w_scale = torch.randn(k, n, device=device).to(f8).t(), scale(1, k)
    whole = torch.empty(m, k, device=device, dtype=bf16)
    shard = torch.empty(m // world, k, device=device, dtype=bf16)
    halves = {COLLECTIVE: lambda: dist.reduce_scatter_tensor(shard, whole),
              PRODUCT: lambda: product(x, w, x_scale, w_scale, whole)}

    def scatter_serially():
        product(x, w, x_scale, w_scale, whole)
        dist.reduce_scatter_tensor(shard, whole)
    tail = (0, 0, bench.group, [m, k], None, None, bf16, True)

    def scatter_in_torch():
        held["scatter"] = torch.ops.symm_mem.fused_scaled_matmul_reduce_scatter(x, w, x_scale, w_scale, "sum", *tail)

    def scatter_in_tandem():
        held["tandem scatter"] = torch.ops.tandem.fused_scaled_matmul_reduce_scatter(
            x, w, x_scale, w_scale, "sum", *tail)
    variants = {DECOMPOSED: (scatter_in_torch, lambda: held["scatter"]),
                "tandem.torch": (scatter_in_tandem, lambda: held["tandem scatter"]),
                **fused.variants("scaled_matmul_reduce_scatter", x, w, shard, ALGORITHMS,
                                 x_scale, w_scale, fast_accum=True)}
    yield Case("scaled_matmul_reduce_scatter", (m, k, n), scatter_serially, shard,
               lambda: scatter_bound(whole, shard, world) + world * scaled_bound(shard, n), halves, variants, {})


def check(bench, fused, case, call, result):
    """Wrong elements on all ranks together, on a poisoned output."""
    case.reference()
    call()
    fused.synchronize()
    result().fill_(float("nan"))
    call()
    fused.synchronize()
    torch.cuda.synchronize()
    wrong = torch.tensor([wrong_elements(result(), case.need, case.bound())], device=bench.device)
    dist.all_reduce(wrong)
    return wrong.item()


def correct_calls(bench, fused, case):
    """The calls to time, and the wrong elements of each variant. A variant that tandem refuses goes to case.why_not: it
    refuses on every rank, before anything is enqueued."""
    calls, wrong = {**case.halves, SERIAL: case.reference}, {}
    for name, (call, result) in case.variants.items():
        try:
            wrong[name] = check(bench, fused, case, call, result)
        except tandem.Error as error:
            if error.code not in (tandem.ErrorCode.UNSUPPORTED, tandem.ErrorCode.INVALID_ARGUMENT):
                raise
            case.why_not[name] = str(error)
            continue
        if wrong[name] == 0:
            calls[name] = call
        else:
            bench.say(f"WRONG: {case.op} {case.sizes} {name}: {wrong[name]} elements")
    return calls, wrong


def device_work(fused, call):
    """What three calls have the GPU do, by CUPTI: {copy or kernel: number}. Copies by a copy engine are "Memcpy"."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(3):
            call()
        fused.synchronize()
        torch.cuda.synchronize()
    counts = collections.Counter(event.name.split("(anonymous namespace)::")[-1].split("(")[0].strip()[:80]
                                 for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA)
    return dict(counts.most_common())


def ratios(medians):
    """Each variant's time over that of the peers and of the product, medians over alternations."""
    return {f"{name} / {peer}": statistics.median(x / y for x, y in zip(medians[name], medians[peer]))
            for peer in (PRODUCT, SERIAL, DECOMPOSED) if peer in medians for name in medians}


def hidden(medians):
    """The share of the communication that each variant hides."""
    alone = list(zip(medians[PRODUCT], medians[COLLECTIVE]))
    return {name: statistics.median(1 - (t - product) / collective for t, (product, collective) in zip(times, alone))
            for name, times in medians.items() if name not in (PRODUCT, COLLECTIVE)}


def measure(bench, fused, args, case):
    """A row for each mode."""
    calls, wrong = correct_calls(bench, fused, case)
    m, n, k = case.sizes
    row = {"op": case.op, "m": m, "n": n, "k": k, "dtype": "bf16" if args.scales == "none" else "f8e4m3",
           "scales": args.scales, "world": bench.world, "wrong": wrong, "why_not": case.why_not, "ran": fused.ran(calls),
           "host_us_in_bursts": {name: bench.host_us(call) for name, call in calls.items()}}
    if args.profile:
        row["device_work"] = {name: device_work(fused, call) for name, call in calls.items() if name.startswith("tandem")}
    for mode in args.modes.split(","):
        timed = calls if mode == "eager" else {name: recorded(call) for name, call in calls.items()}
        medians = bench.alternate(timed, args.alternations, args.rounds)
        fused.synchronize()
        bench.say(case.op, case.sizes, mode, {name: round(statistics.median(us), 1) for name, us in medians.items()})
        yield row | {"mode": mode, "medians_us": medians, "ratios": ratios(medians), "hidden": hidden(medians)}
        del timed


def main():
    parser = row_arguments(__doc__)
    parser.add_argument("--shapes", default="1024..8192x3584x8192", help=SHAPES)
    parser.add_argument("--scales", default="none", choices=("none", "tensor", "row"), help="products of f8e4m3, scaled so")
    parser.add_argument("--modes", default="eager,graph")
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--profile", action="store_true", help="say what the GPUs do in three calls")
    parser.add_argument("--sleep-cycles", type=int, default=1_000_000)
    args = parser.parse_args()
    start_gpu_rank()
    bench = Rounds(args.sleep_cycles)
    fused = Tandem()
    about, any_wrong = about_run(args), False
    for m, n, k in sizes_of(args.shapes):
        made = (cases(bench, fused, m, n, k) if args.scales == "none" else
                scaled_cases(bench, fused, m, n, k, args.scales))
        for case in made:
            rows = list(measure(bench, fused, args, case))
            any_wrong |= any(rows[0]["wrong"].values())
            if bench.rank == 0 and args.out:
                append_rows(args.out, rows, gpu_facts() | about)
    dist.barrier()
    fused.close()
    dist.destroy_process_group()
    return int(any_wrong)


if __name__ == "__main__":
    sys.exit(main())
