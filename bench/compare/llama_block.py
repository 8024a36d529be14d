#!/usr/bin/env python3
"""Forward and backward of one layer of Llama 3 8B on W ranks, by PyTorch and by tandem, in turns on the same tensors.

torchrun --standalone --nproc-per-node 2 llama_block.py [--tokens 4096,8192] [--out FILE]
torchrun --standalone --nproc-per-node 2 llama_block.py --device cpu --tiny

The layer is written and split as users of PyTorch do it: nn.Module, and parallelize_module() with sequence parallelism.
bf16, one sequence. These are the variants; all have the same parameters:

    dtensor              the layer, eager; outputs and gradients of the others are compared with its
    compiled             torch.compile of the layer
    compiled async TP    the same with PyTorch's pass that fuses collectives and products (GPUs only)
    compiled tandem      the same with tandem.torch.fusion_pass()
    collectives          the layer on local tensors with functional collectives, eager: what DTensor costs
    tandem               the same with the fused ops of tandem.torch in the place of collective and product, eager

A JSON row for each number of tokens has for each variant

    t_median_us, t_min_us    a step, slowest rank of each round; the time of the host where it is the slower one
    t_host_us                how long the calls of a step keep the host
    tokens_per_s             by the median
    peak_memory_bytes        the most that PyTorch's tensors took
    outside_bytes            what the first steps took elsewhere: workspaces, symmetric memory, kernels
    errors, error, worst     for each result the largest error relative to its largest element; the largest of them
    fused                    how often each fused op is in the graphs that were compiled

A variant with a wrong result is not timed, and the exit code is 1.
"""
import collections
import os
import random
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed._functional_collectives import all_gather_tensor_autograd, reduce_scatter_tensor_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               parallelize_module)

import tandem.torch
from torch_rounds import about_run, append_rows, gpu_facts, row_arguments, start_gpu_rank

REFERENCE = "dtensor"
# Results are sums of bf16 products in different orders, rounded to bf16 up to a dozen times on their way.
ALLOWED = 2 ** -5
LLAMA_3_8B = {"hidden": 4096, "heads": 32, "kv_heads": 8, "intermediate": 14336}
TINY = {"hidden": 128, "heads": 8, "kv_heads": 4, "intermediate": 384}


def rotated(x, turns):
    cos, sin = turns
    one, other = x.float().chunk(2, -1)
    return torch.cat((one * cos - other * sin, other * cos + one * sin), -1).to(x.dtype)


def attend(q, k, v, head_size, turns):
    """Attention of this rank's heads: q, k, v are [1, S, heads * head_size]."""
    q, k, v = (each.unflatten(-1, (-1, head_size)) for each in (q, k, v))
    q, k, v = (each.transpose(1, 2) for each in (rotated(q, turns), rotated(k, turns), v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2)


class Attention(nn.Module):
    def __init__(self, hidden, heads, kv_heads):
        super().__init__()
        self.head_size = hidden // heads
        self.wq = nn.Linear(hidden, hidden, bias=False)
        self.wk = nn.Linear(hidden, kv_heads * self.head_size, bias=False)
        self.wv = nn.Linear(hidden, kv_heads * self.head_size, bias=False)
        self.wo = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x, turns):
        return self.wo(attend(self.wq(x), self.wk(x), self.wv(x), self.head_size, turns))


class FeedForward(nn.Module):
    def __init__(self, hidden, intermediate):
        super().__init__()
        self.w1 = nn.Linear(hidden, intermediate, bias=False)
        self.w2 = nn.Linear(intermediate, hidden, bias=False)
        self.w3 = nn.Linear(hidden, intermediate, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    def __init__(self, hidden, heads, kv_heads, intermediate):
        super().__init__()
        self.attention_norm = nn.RMSNorm(hidden, eps=1e-5)
        self.attention = Attention(hidden, heads, kv_heads)
        self.ffn_norm = nn.RMSNorm(hidden, eps=1e-5)
        self.feed_forward = FeedForward(hidden, intermediate)

    def forward(self, x, turns):
        x = x + self.attention(self.attention_norm(x), turns)
        return x + self.feed_forward(self.ffn_norm(x))


def parallelized(layer, mesh):
    """Ranks share the layer's heads and intermediate columns. Between the products each has a part of the sequence."""
    plan = {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)),
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        "ffn_norm": SequenceParallel(),
        "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "feed_forward.w1": ColwiseParallel(),
        "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
        "feed_forward.w3": ColwiseParallel(),
    }
    return parallelize_module(layer, mesh, plan)


class Collectives:
    """Collectives and products one after the other."""

    def __init__(self, group):
        self.group = group

    def gather(self, x, weights):
        whole = all_gather_tensor_autograd(x, 1, self.group)
        return [F.linear(whole, weight) for weight in weights]

    def scatter(self, x, weight):
        return reduce_scatter_tensor_autograd(F.linear(x, weight), "sum", 1, self.group)


class Fused:
    """tandem's fused ops."""

    def __init__(self, group):
        self.group = group

    def gather(self, x, weights):
        return tandem.torch.fused_all_gather_matmul(x, [weight.t() for weight in weights], 1, self.group)[1]

    def scatter(self, x, weight):
        return tandem.torch.fused_matmul_reduce_scatter(x, weight.t(), "sum", 1, self.group)


def local(parameter):
    """This rank's part of a parameter. A norm's weight is whole on each rank, its gradient a summand of each rank."""
    partial = isinstance(parameter.placements[0], Replicate)
    return parameter.to_local(grad_placements=[Partial()] if partial else None)


def on_local_tensors(layer, products):
    """The layer as a function of local tensors that leaves what communicates to `products`."""
    attention, ffn = layer.attention, layer.feed_forward

    def normed(x, norm):
        return F.rms_norm(x, norm.normalized_shape, local(norm.weight), norm.eps)

    def forward(x, turns):
        weights = [local(linear.weight) for linear in (attention.wq, attention.wk, attention.wv)]
        qkv = products.gather(normed(x, layer.attention_norm), weights)
        x = x + products.scatter(attend(*qkv, attention.head_size, turns), local(attention.wo.weight))
        gate, up = products.gather(normed(x, layer.ffn_norm), [local(ffn.w1.weight), local(ffn.w3.weight)])
        return x + products.scatter(F.silu(gate) * up, local(ffn.w2.weight))
    return forward


def counter(counts):
    """A pass that counts the fused ops of a graph."""
    def count(graph):
        for node in graph.nodes:
            if node.op == "call_function" and "fused_" in str(node.target) and "matmul" in str(node.target):
                counts[str(node.target)] += 1
    return count


class Bench:
    def __init__(self, args):
        self.args = args
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.on_gpu = args.device == "cuda"
        self.device = torch.device("cuda", torch.cuda.current_device()) if self.on_gpu else torch.device("cpu")
        self.meeting = torch.zeros(1, device=self.device)
        self.group = dist.group.WORLD
        self.fused = {}
        self.fusion = None
        self.order = random.Random(20)  # of variants, the same on all ranks

    def say(self, *text):
        if self.rank == 0:
            print(*text, flush=True)

    def layer(self, sizes):
        torch.manual_seed(7)
        layer = Layer(**sizes).to(self.device, torch.bfloat16)
        return parallelized(layer, init_device_mesh(self.args.device, (self.world,)))

    def inputs(self, sizes, tokens):
        """This rank's part of the input and of the output's gradient, and the angles of all positions."""
        torch.manual_seed(100 + self.rank)
        shape = 1, tokens // self.world, sizes["hidden"]
        x, grad = (torch.randn(shape, device=self.device, dtype=torch.bfloat16) for _ in range(2))
        half = sizes["hidden"] // sizes["heads"] // 2
        speeds = 500000.0 ** (-torch.arange(half, device=self.device) / half)
        angles = torch.outer(torch.arange(tokens, device=self.device), speeds)[:, None]
        return x.requires_grad_(), grad, torch.stack((angles.cos(), angles.sin()))

    def compiled(self, name, layer, options):
        self.fused[name] = collections.Counter()
        options |= {"post_grad_custom_post_pass": counter(self.fused[name])}
        return torch.compile(layer, dynamic=False, fullgraph=True, options=options)

    def variants(self, layer):
        found = {REFERENCE: layer, "compiled": self.compiled("compiled", layer, {})}
        if self.on_gpu:
            found["compiled async TP"] = self.compiled("compiled async TP", layer, {"_micro_pipeline_tp": True})
        else:
            self.say("compiled async TP: left out, it needs GPUs")
        self.fusion = tandem.torch.fusion_pass()
        options = {"post_grad_custom_pre_pass": self.fusion}
        found["compiled tandem"] = self.compiled("compiled tandem", layer, options)
        found["collectives"] = on_local_tensors(layer, Collectives(self.group))
        found["tandem"] = on_local_tensors(layer, Fused(self.group))
        return found

    def synchronize(self):
        if self.on_gpu:
            torch.cuda.synchronize()

    def outside_bytes(self):
        """Memory of the GPU that is in use, but not PyTorch's."""
        free, total = torch.cuda.mem_get_info()
        return total - free - torch.cuda.memory_reserved()

    def peak_bytes(self, step):
        if not self.on_gpu:
            return None
        self.synchronize()
        torch.cuda.reset_peak_memory_stats()
        step()
        self.synchronize()
        return torch.cuda.max_memory_allocated()

    def time_step(self, step):
        """(us, us that the host needs), with ranks that start together."""
        if self.on_gpu and self.args.sleep_cycles:
            torch.cuda._sleep(self.args.sleep_cycles)  # time for the host to enqueue what comes
        dist.all_reduce(self.meeting)
        if not self.on_gpu:
            begin = time.perf_counter()
            step()
            return 2 * [(time.perf_counter() - begin) * 1e6]
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        begin = time.perf_counter()
        step()
        host = (time.perf_counter() - begin) * 1e6
        events[1].record()
        self.synchronize()
        return [events[0].elapsed_time(events[1]) * 1e3, host]

    def time_rounds(self, steps, clear):
        """Of each variant the times and host times of all rounds, each the slowest rank's. A round has the variants
        in a random order, the same on all ranks."""
        rounds = []
        for _ in range(self.args.rounds):
            taken = {}
            for name in self.order.sample(list(steps), len(steps)):
                clear()
                taken[name] = self.time_step(steps[name])
            rounds.append([taken[name] for name in steps])
        times = torch.tensor(rounds, device=self.device)
        dist.all_reduce(times, op=dist.ReduceOp.MAX)
        return {name: times[:, i].t().tolist() for i, name in enumerate(steps)}


def results(layer, out, x):
    """Output and gradients by name. Those of a norm's weight are summed over the ranks."""
    found = {"out": out, "x": x.grad}
    for name, parameter in layer.named_parameters():
        grad = parameter.grad
        if isinstance(grad, DTensor):
            placements = [Replicate()] if grad.placements[0].is_partial() else grad.placements
            grad = grad.redistribute(placements=placements).to_local()
        found[name] = grad
    return {name: tensor.detach().float() for name, tensor in found.items()}


def errors(got, need):
    """For each tensor the largest error of any rank, relative to the largest element."""
    device = need["out"].device
    pairs = [[(got[name] - need[name]).abs().max(), need[name].abs().max()] for name in need]
    found = torch.tensor(pairs, device=device)
    found = torch.where(found.isnan(), torch.inf, found)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return {name: (error / largest).item() for name, (error, largest) in zip(need, found)}


def measure(bench, layer, sizes, tokens):
    """A row."""
    torch._dynamo.reset()  # sizes of compiled variants are fixed
    x, out_grad, turns = bench.inputs(sizes, tokens)
    held = {}

    def clear():
        x.grad = None
        layer.zero_grad(set_to_none=True)
        held.clear()

    def step_of(forward):
        def step():
            held["out"] = forward(x, turns)
            held["out"].backward(out_grad)
        return step
    steps, rows, need = {}, {}, None
    for name, forward in bench.variants(layer).items():
        step = step_of(forward)
        before = bench.outside_bytes() if bench.on_gpu else 0
        for _ in range(bench.args.first):
            clear()
            step()
        bench.synchronize()
        outside = bench.outside_bytes() - before if bench.on_gpu else None
        got = results(layer, held["out"], x)
        need = need or got
        found = errors(got, need)
        worst = max(found, key=found.get)
        rows[name] = {"worst": worst, "error": found[worst], "errors": found, "outside_bytes": outside}
        if name in bench.fused:
            rows[name]["fused"] = dict(bench.fused[name])
        del got
        if found[worst] <= ALLOWED:
            steps[name] = step
        else:
            bench.say(f"WRONG: {name}: {worst} is off by {found[worst]:.1e} of its largest, may be {ALLOWED:.1e}")
    del need
    for name, step in steps.items():
        clear()
        rows[name]["peak_memory_bytes"] = bench.peak_bytes(step)
    for name, (times, host) in bench.time_rounds(steps, clear).items():
        median = statistics.median(times)
        rows[name] |= {"t_median_us": median, "t_min_us": min(times), "t_host_us": statistics.median(host),
                       "tokens_per_s": tokens / median * 1e6}
    clear()
    return {"op": "llama_block", "tokens": tokens, "world": bench.world, "dtype": "bf16", **sizes,
            "rounds": bench.args.rounds, "allowed_error": ALLOWED, "variants": rows}


def show(bench, row):
    bench.say(f"\n{row['tokens']} tokens, W = {row['world']}")
    for name, one in row["variants"].items():
        if "t_median_us" in one:
            times = f"median {one['t_median_us']:10.1f} us, min {one['t_min_us']:10.1f}, host {one['t_host_us']:9.1f}"
            memory = "".join(f", {kind} {one[kind + '_bytes'] / 2 ** 20:.0f} MiB" for kind in ("peak_memory", "outside")
                             if one[kind + "_bytes"] is not None)
            bench.say(f"{name:18} {times}, {one['tokens_per_s']:9.0f} tokens/s{memory}, "
                      f"error {one['error']:.1e} ({one['worst']})")
        if "fused" in one:
            bench.say(f"{'':18} fused: {one['fused'] or 'nothing'}")
    bench.say(f"\nwhat tandem's pass found:\n{bench.fusion.report()}")


def machine(on_gpu):
    if on_gpu:
        return gpu_facts()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line for line in file if line.startswith("model name")]
    return {"cpu": names[0].partition(":")[2].strip() if names else "", "cores": len(os.sched_getaffinity(0))}


def main():
    parser = row_arguments(__doc__)
    parser.add_argument("--tokens", default=None, help="lengths of the sequence; 4096,8192, with --tiny 64")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--first", type=int, default=5, help="steps of each variant before any is timed")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--default-stream", action="store_true", help="run on it, not on another stream")
    parser.add_argument("--sleep-cycles", type=int, default=0, help="a head start for the host")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to see whether it runs")
    args = parser.parse_args()
    if args.device == "cuda":
        start_gpu_rank(own_stream=not args.default_stream)
    else:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
    bench = Bench(args)
    sizes = TINY if args.tiny else LLAMA_3_8B
    layer = bench.layer(sizes)
    rows = []
    for tokens in map(int, (args.tokens or ("64" if args.tiny else "4096,8192")).split(",")):
        rows.append(measure(bench, layer, sizes, tokens))
        show(bench, rows[-1])
    if bench.rank == 0 and args.out:
        append_rows(args.out, rows, machine(bench.on_gpu) | about_run(args))
    dist.barrier()
    tandem.torch.close_groups()
    dist.destroy_process_group()
    return int(any("t_median_us" not in one for row in rows for one in row["variants"].values()))


if __name__ == "__main__":
    sys.exit(main())
