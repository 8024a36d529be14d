#!/usr/bin/env python3
"""Alternates tandem's fused ops with PyTorch's and with cuBLAS + NCCL, in one run on the same tensors.

torchrun --nproc-per-node G against_torch.py [--out FILE]

"tandem serial" and so on are calls of the package tandem with that algorithm, "tandem.torch" the ops of torch.ops.tandem,
which choose one. One JSON object a shape, op and mode (eager, graph): for each variant the medians (us, slowest rank of each round) of
every alternation, and the median over alternations of its ratio to the peers. Before a variant is timed its result is
compared with cuBLAS + NCCL on the poisoned output; a wrong one is not timed.
"""
import argparse
import collections
import json
import os
import random
import statistics
import subprocess
import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import tandem
import tandem.torch


class Tandem:
    """The fused ops of the package tandem, on the group of all ranks."""

    def __init__(self, *_):
        self.group = tandem.torch.group_of(dist.group.WORLD, torch.device("cuda", torch.cuda.current_device()))

    def call(self, name, a, b, out, algorithm):
        function = getattr(tandem, "fused_" + name)
        out = [out] if name == "all_gather_matmul" else out

        def run():
            function(a, b, group=self.group, out=out, algorithm=algorithm)
        return run

    def synchronize(self):
        torch.cuda.current_stream().synchronize()
        self.group.check()

    def close(self):
        tandem.torch.close_groups()


def recorded(function):
    """The function as a replay of a graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        function()
    torch.cuda.synchronize()
    dist.barrier()
    return graph.replay


class Bench:
    def __init__(self, args):
        self.args = args
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.flush = torch.empty(256 << 20, dtype=torch.uint8, device=self.device)
        self.meeting = torch.zeros(1, device=self.device)
        self.group = dist.group.WORLD.group_name

    def time_round(self, calls):
        """One time of each call, ranks started together, cold L2, in a random order that all ranks share."""
        names = list(calls)
        random.shuffle(names)
        events = {}
        for name in names:
            self.flush.zero_()
            torch.cuda._sleep(self.args.sleep_cycles)  # time for the host to enqueue what comes
            dist.all_reduce(self.meeting)
            events[name] = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            events[name][0].record()
            calls[name]()
            events[name][1].record()
        torch.cuda.synchronize()
        return {name: start.elapsed_time(end) * 1e3 for name, (start, end) in events.items()}

    def alternate(self, calls):
        """Medians of each alternation: {name: [us, ...]}."""
        medians = {name: [] for name in calls}
        for _ in range(self.args.alternations):
            rounds = [self.time_round(calls) for _ in range(self.args.rounds)]
            times = torch.tensor([[one[name] for name in calls] for one in rounds], device=self.device)
            dist.all_reduce(times, op=dist.ReduceOp.MAX)
            for name, column in zip(calls, times.t().cpu().tolist()):
                medians[name].append(statistics.median(column))
        return medians

    def host_us(self, call, bursts=5, first=8, count=16):
        """Host cost of an eager call behind others, as `tandem bench` measures it: of each burst the median behind its first
        calls, and of those the median, on the slowest rank."""
        costs = []
        for _ in range(bursts):
            torch.cuda.synchronize()
            dist.barrier()
            torch.cuda._sleep(self.args.sleep_cycles)
            burst = []
            for _ in range(first + count):
                start = time.perf_counter()
                call()
                burst.append((time.perf_counter() - start) * 1e6)
            costs.append(statistics.median(burst[first:]))
        torch.cuda.synchronize()
        slowest = torch.tensor([statistics.median(costs)], device=self.device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return slowest.item()


def wrong_elements(got, need, allowed):
    return int((~((got.float() - need.float()).abs() <= allowed)).sum().item())


def product_bound(need, k):
    """Two products of standard normal numbers, each rounded to bf16 once."""
    return 2 ** -7 * need.float().abs() + 2 ** -8 * k ** 0.5


def scaled_bound(need, k):
    """Two products of numbers that were rounded to f8 first, whose fast sums keep some 14 bits; scales are up to 2.25."""
    return 2 ** -7 * need.float().abs() + 2 ** -6 * k ** 0.5


def scatter_bound(partial, like, world):
    """Two sums over the ranks: each partial is rounded to bf16, and so is each sum on the way, in any order. None is larger
    than the sum of the partials' sizes."""
    sizes = torch.empty(like.shape, device=like.device, dtype=torch.float32)
    dist.reduce_scatter_tensor(sizes, partial.float().abs())
    return (world + 2) * 2 ** -8 * sizes


def cases(bench, fused, m, n, k):
    """For each op: (name, sizes, bound of errors behind a reference call, reference call, its result, {variant: (call,
    result)})."""
    world, device = bench.world, bench.device
    bf16 = torch.bfloat16
    torch.manual_seed(7)
    b = torch.randn(n, k, device=device, dtype=bf16).t()
    torch.manual_seed(100 + bench.rank)
    a_shard = torch.randn(m // world, k, device=device, dtype=bf16)
    gathered = torch.empty(m, k, device=device, dtype=bf16)
    need = torch.empty(m, n, device=device, dtype=bf16)

    def gather_serially():
        dist.all_gather_into_tensor(gathered, a_shard)
        torch.mm(gathered, b, out=need)
    held = {}

    def gather_in_torch():
        held["gather"] = torch.ops.symm_mem.fused_all_gather_matmul(a_shard, [b], 0, bench.group)[1][0]

    def gather_in_tandem():
        held["tandem gather"] = torch.ops.tandem.fused_all_gather_matmul(a_shard, [b], 0, bench.group)[1][0]
    variants = {"torch decomposed": (gather_in_torch, lambda: held["gather"]),
                "tandem.torch": (gather_in_tandem, lambda: held["tandem gather"])}
    for algorithm in ("serial", "pipelined"):
        out = torch.empty(m, n, device=device, dtype=bf16)
        variants["tandem " + algorithm] = (fused.call("all_gather_matmul", a_shard, b, out, algorithm),
                                           lambda out=out: out)
    yield "all_gather_matmul", (m, n, k), lambda: product_bound(need, k), gather_serially, need, variants

    # The down projection of the same layer: its k is this one's n.
    x = torch.randn(m, n, device=device, dtype=bf16)
    w = torch.randn(k, n, device=device, dtype=bf16).t()
    whole = torch.empty(m, k, device=device, dtype=bf16)
    shard = torch.empty(m // world, k, device=device, dtype=bf16)

    def scatter_serially():
        torch.mm(x, w, out=whole)
        dist.reduce_scatter_tensor(shard, whole)

    def scatter_in_torch():
        held["scatter"] = torch.ops.symm_mem.fused_matmul_reduce_scatter(x, w, "sum", 0, bench.group)

    def scatter_in_tandem():
        held["tandem scatter"] = torch.ops.tandem.fused_matmul_reduce_scatter(x, w, "sum", 0, bench.group)
    variants = {"torch decomposed": (scatter_in_torch, lambda: held["scatter"]),
                "tandem.torch": (scatter_in_tandem, lambda: held["tandem scatter"])}
    for algorithm in ("serial", "pipelined"):
        out = torch.empty(m // world, k, device=device, dtype=bf16)
        variants["tandem " + algorithm] = (fused.call("matmul_reduce_scatter", x, w, out, algorithm),
                                           lambda out=out: out)
    yield ("matmul_reduce_scatter", (m, k, n), lambda: scatter_bound(whole, shard, world), scatter_serially, shard,
           variants)


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

    def gather_serially():
        dist.all_gather_into_tensor(gathered.view(torch.uint8), a.view(torch.uint8))
        if scales == "row":
            dist.all_gather_into_tensor(all_scales, a_scale)
        product(gathered, b, all_scales, b_scale, need)
    held = {}
    arguments = (a, [b], a_scale, [b_scale], 0, bench.group, [None], [None], [bf16], [True])

    def gather_in_torch():
        held["gather"] = torch.ops.symm_mem.fused_all_gather_scaled_matmul(*arguments)[1][0]

    def gather_in_tandem():
        held["tandem gather"] = torch.ops.tandem.fused_all_gather_scaled_matmul(*arguments)[1][0]
    alone = torch.empty_like(need)
    variants = {"product alone": (lambda: product(gathered, b, all_scales, b_scale, alone), lambda: alone),
                "torch decomposed": (gather_in_torch, lambda: held["gather"]),
                "tandem.torch": (gather_in_tandem, lambda: held["tandem gather"])}
    for algorithm in ("serial", "pipelined", "native"):
        out = torch.empty_like(need)

        def call(out=out, algorithm=algorithm):
            tandem.fused_all_gather_scaled_matmul(
                a, [b], a_scale, [b_scale], group=fused.group, out=[out], fast_accum=True, algorithm=algorithm)
        variants["tandem " + algorithm] = (call, lambda out=out: out)
    yield ("all_gather_scaled_matmul", (m, n, k), lambda: scaled_bound(need, k), gather_serially, need, variants)

    x, x_scale = torch.randn(m, n, device=device).to(f8), scale(m, 1)
    w, w_scale = torch.randn(k, n, device=device).to(f8).t(), scale(1, k)
    whole = torch.empty(m, k, device=device, dtype=bf16)
    shard = torch.empty(m // world, k, device=device, dtype=bf16)

    def scatter_serially():
        product(x, w, x_scale, w_scale, whole)
        dist.reduce_scatter_tensor(shard, whole)
    tail = (0, 0, bench.group, [m, k], None, None, bf16, True)

    def scatter_in_torch():
        held["scatter"] = torch.ops.symm_mem.fused_scaled_matmul_reduce_scatter(x, w, x_scale, w_scale, "sum", *tail)

    def scatter_in_tandem():
        held["tandem scatter"] = torch.ops.tandem.fused_scaled_matmul_reduce_scatter(
            x, w, x_scale, w_scale, "sum", *tail)
    partial = torch.empty_like(whole)
    variants = {"torch decomposed": (scatter_in_torch, lambda: held["scatter"]),
                "tandem.torch": (scatter_in_tandem, lambda: held["tandem scatter"])}
    for algorithm in ("serial", "pipelined"):
        out = torch.empty_like(shard)

        def call(out=out, algorithm=algorithm):
            tandem.fused_scaled_matmul_reduce_scatter(
                x, w, x_scale, w_scale, group=fused.group, out=out, fast_accum=True, algorithm=algorithm)
        variants["tandem " + algorithm] = (call, lambda out=out: out)

    def bound():
        product(x, w, x_scale, w_scale, partial)
        return scatter_bound(partial, shard, world) + world * scaled_bound(shard, n)
    yield "scaled_matmul_reduce_scatter", (m, k, n), bound, scatter_serially, shard, variants


def check(bench, fused, name, call, result, reference, need, bound):
    """Wrong elements on all ranks together, on a poisoned output."""
    reference()
    call()
    fused.synchronize()
    result().fill_(float("nan"))
    call()
    fused.synchronize()
    torch.cuda.synchronize()
    wrong = torch.tensor([wrong_elements(result(), need, bound())], device=bench.device)
    dist.all_reduce(wrong)
    if bench.rank == 0 and wrong.item():
        print(f"WRONG: {name}: {wrong.item()} elements", flush=True)
    return wrong.item()


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


def measure(bench, fused, args, out):
    for shape in args.shapes.split(","):
        m, n, k = map(int, shape.split("x"))
        made = (cases(bench, fused, m, n, k) if args.scales == "none" else
                scaled_cases(bench, fused, m, n, k, args.scales))
        for op, sizes, bound, reference, need, variants in made:
            calls = {"cublas + nccl": reference}
            wrong = {}
            for name, (call, result) in variants.items():
                wrong[name] = check(bench, fused, f"{op} {sizes} {name}", call, result, reference, need, bound)
                if wrong[name] == 0:
                    calls[name] = call
            host = {name: bench.host_us(call) for name, call in calls.items()}
            work = {}
            if args.profile:
                work = {name: device_work(fused, call) for name, call in calls.items() if name.startswith("tandem")}
            for mode in args.modes.split(","):
                timed = calls if mode == "eager" else {name: recorded(call) for name, call in calls.items()}
                medians = bench.alternate(timed)
                fused.synchronize()
                row = {"op": op, "m": sizes[0], "n": sizes[1], "k": sizes[2], "dtype": "bf16" if args.scales == "none" else "f8e4m3", "scales": args.scales, "world": bench.world,
                       "mode": mode, "wrong": wrong, "host_us_in_bursts": host, "medians_us": medians, "ratios": {}}
                if work:
                    row["device_work"] = work
                for peer in ("cublas + nccl", "torch decomposed"):
                    for name in medians:
                        ratios = [x / y for x, y in zip(medians[name], medians.get(peer, []))]
                        if ratios:
                            row["ratios"][f"{name} / {peer}"] = statistics.median(ratios)
                if bench.rank == 0:
                    out.append(row)
                    print(op, sizes, mode, {name: round(statistics.median(us), 1) for name, us in medians.items()},
                          {name: round(us, 1) for name, us in host.items()}, flush=True)
                del timed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=None, help="append JSON rows here")
    parser.add_argument("--commit", default="")
    parser.add_argument("--shapes", default="4096x3584x8192,2048x3584x8192,8192x3584x8192,1024x3584x8192")
    parser.add_argument("--scales", default="none", choices=("none", "tensor", "row"), help="products of f8e4m3, scaled so")
    parser.add_argument("--modes", default="eager,graph")
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--profile", action="store_true", help="say what the GPUs do in three calls")
    parser.add_argument("--sleep-cycles", type=int, default=1_000_000)
    args = parser.parse_args()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    torch.cuda.set_stream(torch.cuda.Stream())  # the default one waits for all others
    random.seed(20)
    bench = Bench(args)
    try:
        symm_mem.enable_symm_mem_for_group(bench.group)
    except Exception as error:  # newer versions enable it by themselves
        if bench.rank == 0:
            print("enable_symm_mem_for_group:", error)
    fused = Tandem()
    rows = []
    measure(bench, fused, args, rows)
    dist.barrier()
    fused.close()
    if bench.rank == 0 and args.out:
        states = subprocess.run(["nvidia-smi", "--query-gpu=name,clocks.sm,power.draw,temperature.gpu,pstate",
                                 "--format=csv,noheader"], capture_output=True, text=True, check=False)
        with open(args.out, "a", encoding="utf-8") as file:
            for row in rows:
                row |= {"gpus": states.stdout.strip().split("\n"), "torch": torch.__version__,
                        "nccl": ".".join(map(str, torch.cuda.nccl.version())), "commit": args.commit,
                        "command": f"against_torch.py --shapes {args.shapes} --scales {args.scales} --modes {args.modes} --alternations "
                                   f"{args.alternations} --rounds {args.rounds}"}
                file.write(json.dumps(row) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
