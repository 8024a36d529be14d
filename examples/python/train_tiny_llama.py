#!/usr/bin/env python3
"""Trains a small Llama in three ways, from the same weights on the same text, and compares the losses.

    python examples/python/train_tiny_llama.py                    # two ranks on CPUs
    python examples/python/train_tiny_llama.py --device cuda      # two GPUs
    python examples/python/train_tiny_llama.py --dtype f8e4m3 --scales row    # without the fused bf16 model
    torchrun --standalone --nproc-per-node 2 examples/python/train_tiny_llama.py

The text is that of this repository's documentation, by bytes. The model and the three ways are in tiny_llama.py. The
program exits with 1 if the last losses of a way differ from those of the first, serial one by more than 1 %.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import math
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from tiny_llama import Fused, FusedFloat8, Llama, Products, Serial, Sizes

import tandem.torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALLOWED = 0.01
COMPILED = "bf16 compiled"
FUSED = {"bf16": "bf16 fused", "f8e4m3": "fp8 row-wise fused"}  # by the type of products
PRODUCTS: dict[str, Callable[[dist.ProcessGroup], Products]] = {
    "bf16 serial": Serial,
    FUSED["bf16"]: Fused,
    FUSED["f8e4m3"]: FusedFloat8,
    COMPILED: Serial,
}


@dataclasses.dataclass
class Run:
    """How one way went on rank 0."""

    variant: str
    losses: list[float] = dataclasses.field(default_factory=list)
    step_s: list[float] = dataclasses.field(default_factory=list)
    fused_ops: dict[str, int] = dataclasses.field(default_factory=dict)  # calls of each op and algorithm, last step
    peak_bytes: int = 0

    def mean_loss(self, end: int, average: int) -> float:
        """The mean loss of `average` steps before step `end`, or of all where they are fewer."""
        return statistics.fmean(self.losses[max(0, end - average) : end])

    def last_loss(self, average: int) -> float:
        return self.mean_loss(len(self.losses), average)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2, help="not with torchrun, which says it itself")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=FUSED, help="train only the fused model of this type beside the serial one")
    parser.add_argument("--scales", choices=("row",), default="row", help="scales of f8e4m3")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=8, help="sequences in a step")
    parser.add_argument("--length", type=int, default=128, help="tokens of a sequence")
    parser.add_argument("--rate", type=float, default=2e-3, help="the highest learning rate")
    parser.add_argument("--average", type=int, default=20, help="how many last steps are compared")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="also train the serial model with fusion_pass()")
    parser.add_argument("--out", type=pathlib.Path, metavar="FOLDER", help="write losses.json and losses.png there")
    return parser.parse_args()


def chosen(args: argparse.Namespace) -> list[str]:
    """The ways that were asked for. All are compared with the first one."""
    names = ["bf16 serial", *(FUSED.values() if args.dtype is None else [FUSED[args.dtype]])]
    return [*names, COMPILED] if args.compile else names


def compiled(model: Llama) -> torch.nn.Module:
    """The model, in which a pass of tandem puts fused ops in the place of collectives and products."""
    options = {"post_grad_custom_pre_pass": tandem.torch.fusion_pass()}
    return torch.compile(model, dynamic=False, options=options)


def documentation() -> torch.Tensor:
    pages = sorted(ROOT.glob("docs/**/*.md"))
    return torch.tensor(list(b"".join(page.read_bytes() for page in pages)))


def reset_peak_memory(device: str) -> None:
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory_bytes(device: str) -> int:
    """Since the reset: that of PyTorch's tensors on a GPU, that of the process on CPUs."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def rate_at(step: int, steps: int) -> float:
    """The learning rate as a part of the highest one: it rises in 20 steps, then falls by a cosine."""
    return min(1.0, (step + 1) / 20) * (0.55 + 0.45 * math.cos(math.pi * step / steps))


def train(variant: str, args: argparse.Namespace, text: torch.Tensor, say: Callable[[str], None]) -> Run:
    """Trains one model. A collective call."""
    group = dist.group.WORLD
    reset_peak_memory(args.device)
    model = Llama(Sizes(), PRODUCTS[variant](group), group, args.length, args.seed).to(args.device)
    loss_of = compiled(model) if variant == COMPILED else model
    optimizer = torch.optim.AdamW(model.parameters(), args.rate, betas=(0.9, 0.95))
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_at(step, args.steps))
    choice = torch.Generator().manual_seed(args.seed)
    run = Run(variant)
    for step in range(args.steps):
        before = tandem.torch.recent_reports()
        starts = torch.randint(len(text) - args.length, (args.batch,), generator=choice).tolist()
        tokens = torch.stack([text[start : start + args.length + 1] for start in starts], 1).to(args.device)
        begin = time.perf_counter()
        loss = loss_of(tokens)
        loss.backward()
        total = loss.detach()
        for summand in (total, *(weight.grad for weight in model.replicated())):
            dist.all_reduce(summand)
        optimizer.step()
        optimizer.zero_grad()
        rates.step()
        run.losses.append(total.item())
        run.step_s.append(time.perf_counter() - begin)
        if (step + 1) % 50 == 0:
            say(f"{variant}: step {step + 1}, loss {run.losses[-1]:.4f}")
    run.peak_bytes = peak_memory_bytes(args.device)
    known = set(map(id, before))
    reports = [report for report in tandem.torch.recent_reports() if id(report) not in known]
    run.fused_ops = collections.Counter(f"{report.key.split()[0]} {report.algorithm}" for report in reports)
    return run


def train_all(rank: int, size: int, args: argparse.Namespace, folder: str | None = None) -> list[Run]:
    """What a rank does. `folder` is where the ranks meet; torchrun's meet by its environment variables."""

    def say(text: str) -> None:
        if rank == 0:
            print(text, flush=True)

    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // size))
    if args.device == "cuda":
        torch.cuda.set_device(rank)
    store = dist.FileStore(f"{folder}/store", size) if folder else None
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo", store=store, rank=rank, world_size=size)
    text = documentation()
    runs = [train(variant, args, text, say) for variant in chosen(args)]
    tandem.torch.close_groups()
    dist.destroy_process_group()
    return runs


def print_table(runs: list[Run], steps: int) -> None:
    rows = [("step", [run.variant for run in runs])]
    for step in sorted({*range(0, steps, max(1, steps // 10)), steps - 1}):
        rows.append((str(step + 1), [f"{run.losses[step]:.4f}" for run in runs]))
    rows.append(("ms", [f"{statistics.median(run.step_s) * 1e3:.1f}" for run in runs]))
    rows.append(("MiB", [f"{run.peak_bytes / 2**20:.0f}" for run in runs]))
    for name, cells in rows:
        print(f"{name:>6}" + "".join(f"{cell:>20}" for cell in cells))
    print("ms: median time of a step. MiB: peak memory of rank 0.\n")


def differences(runs: list[Run], average: int) -> list[float]:
    """How much larger each last loss is than the first, as a part of it."""
    serial = runs[0].last_loss(average)
    return [run.last_loss(average) / serial - 1 for run in runs]


def commit() -> str | None:
    command = ["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def machine(device: str) -> dict[str, object]:
    if device == "cuda":
        return {"gpu": torch.cuda.get_device_name()}
    names = [line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {"cpu": names[0].partition(":")[2].strip() if names else "", "cores": len(os.sched_getaffinity(0))}


def write_rows(path: pathlib.Path, runs: list[Run], world: int, args: argparse.Namespace) -> None:
    """One JSON object a line and variant, as in bench/results."""
    with path.open("w", encoding="utf-8") as file:
        for run, difference in zip(runs, differences(runs, args.average)):
            row = {
                "op": "train_tiny_llama",
                "variant": run.variant,
                "world": world,
                **dataclasses.asdict(Sizes()),
                **{name: getattr(args, name) for name in ("steps", "batch", "length", "rate", "average", "seed")},
                "last_loss": run.last_loss(args.average),
                "difference": difference,
                "mean_loss": statistics.fmean(run.losses),
                "losses": [round(loss, 5) for loss in run.losses],
                "fused_ops": run.fused_ops,
                "t_step_us": statistics.median(run.step_s) * 1e6,
                "peak_memory_bytes": run.peak_bytes,
                **machine(args.device),
                "torch": torch.__version__,
                "commit": commit(),
                "command": shlex.join(["train_tiny_llama.py", *sys.argv[1:]]),
            }
            file.write(json.dumps(row) + "\n")


def draw(path: pathlib.Path, runs: list[Run], average: int) -> None:
    """The losses, and below them the differences of their running means to those of the first run."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        print("matplotlib is not installed: no picture is drawn.")
        return
    figure, (above, below) = plt.subplots(2, sharex=True, figsize=(7, 4.5), height_ratios=(3, 1), layout="constrained")
    means = [[run.mean_loss(end, average) for end in range(1, len(run.losses) + 1)] for run in runs]
    for run, mean, width in zip(runs, means, (3.5, 2.0, 0.8, 0.8)):
        above.plot(run.losses, linewidth=width, label=run.variant)
        below.plot([100 * (loss / serial - 1) for loss, serial in zip(mean, means[0])], linewidth=width)
    above.set_ylabel("loss (nats per byte)")
    above.legend()
    below.set_ylabel("difference\nof means (%)")
    below.set_ylim(-100 * ALLOWED, 100 * ALLOWED)
    below.set_xlabel("step")
    figure.savefig(path, dpi=80)


def report(runs: list[Run], world: int, args: argparse.Namespace) -> int:
    """Prints and writes what came out. Returns the exit code."""
    print_table(runs, args.steps)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        write_rows(args.out / "losses.json", runs, world, args)
        draw(args.out / "losses.png", runs, args.average)
    parts = differences(runs, args.average)
    last = [f"{run.variant} {run.last_loss(args.average):.4f} ({part:+.2%})" for run, part in zip(runs, parts)]
    print(f"mean loss of the last {min(args.average, args.steps)} steps: " + ", ".join(last))
    wrong = [run.variant for run, part in zip(runs, parts) if not abs(part) <= ALLOWED]
    if wrong:
        print(f"more than {ALLOWED:.0%} from serial: {', '.join(wrong)}")
    return 1 if wrong else 0


def main() -> int:
    args = parse()
    if "RANK" in os.environ:  # torchrun has started the ranks
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        runs = train_all(rank, world, args)
        return report(runs, world, args) if rank == 0 else 0
    with tempfile.TemporaryDirectory() as folder:
        runs = tandem.launch(train_all, args.ranks, args, folder)[0]
    return report(runs, args.ranks, args)


if __name__ == "__main__":
    sys.exit(main())
