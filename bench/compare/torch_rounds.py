"""What the comparisons with PyTorch share: rounds of timed calls, in which the variants take turns, and rows of results."""
import argparse
import datetime
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

HERE = pathlib.Path(__file__).resolve().parent


class Rounds:
    """Times calls on the GPU of this rank. All ranks make the same calls in the same order."""

    def __init__(self, sleep_cycles=1_000_000):
        self.sleep_cycles = sleep_cycles
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.flush = torch.empty(256 << 20, dtype=torch.uint8, device=self.device)
        self.meeting = torch.zeros(1, device=self.device)
        self.group = dist.group.WORLD.group_name
        self.order = random.Random(20)  # of variants, the same on all ranks

    def say(self, *text):
        if self.rank == 0:
            print(*text, flush=True)

    def slowest(self, values):
        """Of each value the largest of any rank."""
        most = torch.tensor(values, device=self.device, dtype=torch.float64)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        return most.tolist()

    def start_together(self, sleep_cycles=None):
        """Enqueues what precedes a timed call: a cold L2, time for the host to enqueue what comes, a meeting of ranks."""
        self.flush.zero_()
        torch.cuda._sleep(sleep_cycles or self.sleep_cycles)
        dist.all_reduce(self.meeting)

    def time_round(self, calls):
        """One time of each call in us, ranks started together, cold L2, in a random order that all ranks share."""
        events = {}
        for name in self.order.sample(list(calls), len(calls)):
            self.start_together()
            events[name] = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            events[name][0].record()
            calls[name]()
            events[name][1].record()
        torch.cuda.synchronize()
        return {name: start.elapsed_time(end) * 1e3 for name, (start, end) in events.items()}

    def alternate(self, calls, alternations, rounds):
        """Medians of each alternation, of the slowest rank of each round: {name: [us, ...]}."""
        medians = {name: [] for name in calls}
        for _ in range(alternations):
            times = [self.time_round(calls) for _ in range(rounds)]
            times = self.slowest([[one[name] for name in calls] for one in times])
            for name, column in zip(calls, zip(*times)):
                medians[name].append(statistics.median(column))
        return medians

    def host_us(self, call, bursts=5, first=8, count=16):
        """Host cost of an eager call behind others, as `tandem bench` measures it: of each burst the median behind its first
        calls, and of those the median, on the slowest rank."""
        costs = []
        for _ in range(bursts):
            torch.cuda.synchronize()
            dist.barrier()
            torch.cuda._sleep(self.sleep_cycles)
            burst = []
            for _ in range(first + count):
                start = time.perf_counter()
                call()
                burst.append((time.perf_counter() - start) * 1e6)
            costs.append(statistics.median(burst[first:]))
        torch.cuda.synchronize()
        return self.slowest([statistics.median(costs)])[0]


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


def wrong_elements(got, need, allowed):
    return int((~((got.float() - need.float()).abs() <= allowed)).sum().item())


def scatter_bound(partial, like, world):
    """Two sums over the ranks: each partial is rounded to bf16, and so is each sum on the way, in any order. None is larger
    than the sum of the partials' sizes."""
    sizes = torch.empty(like.shape, device=like.device, dtype=torch.float32)
    dist.reduce_scatter_tensor(sizes, partial.float().abs())
    return (world + 2) * 2 ** -8 * sizes


def start_gpu_rank(own_stream=True):
    """Joins the ranks that torchrun started, one GPU each."""
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    if own_stream:
        torch.cuda.set_stream(torch.cuda.Stream())  # the default one waits for all others
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # newer versions enable it by themselves
        symm_mem.enable_symm_mem_for_group(dist.group.WORLD.group_name)


def commit():
    command = ["git", "-C", HERE, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def gpu_facts():
    states = subprocess.run(["nvidia-smi", "--query-gpu=name,clocks.sm,power.draw,temperature.gpu,pstate",
                             "--format=csv,noheader"], capture_output=True, text=True, check=False)
    return {"gpu": torch.cuda.get_device_name(), "gpus": states.stdout.strip().split("\n"),
            "nccl": ".".join(map(str, torch.cuda.nccl.version()))}


def row_arguments(about):
    """A parser with the arguments that every comparison has."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--out", default=None, help="append JSON rows here")
    parser.add_argument("--commit", default=None, help="where git cannot say it")
    return parser


SHAPES = "MxNxK, or M..MxNxK with rows that double; commas between"


def sizes_of(shapes):
    """(m, n, k) of each of "4096x3584x8192,64..512x3584x8192": m doubles from 64 to 512."""
    for shape in shapes.split(","):
        rows, n, k = shape.split("x")
        m, _, last = rows.partition("..")
        m = int(m)
        while m <= int(last or m):
            yield m, int(n), int(k)
            if not last:
                break
            m *= 2


def command_line():
    """The command that measures the same again; where rows go is no part of it."""
    words, arguments = [], iter(sys.argv[1:])
    for word in arguments:
        if word in ("--out", "--commit"):
            next(arguments, None)
        elif not word.startswith(("--out=", "--commit=")):
            words.append(word)
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return " ".join(["torchrun --nproc-per-node", ranks, pathlib.Path(sys.argv[0]).name, *words])


def about_run(args):
    """What all rows of a run share."""
    now = datetime.datetime.now(datetime.UTC)
    return {"torch": torch.__version__, "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "commit": args.commit or commit(),
            "command": command_line()}


def append_rows(path, rows, about):
    with open(path, "a", encoding="utf-8") as file:
        file.writelines(json.dumps(row | about) + "\n" for row in rows)
