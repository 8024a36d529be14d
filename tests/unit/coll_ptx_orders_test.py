#!/usr/bin/env python3
"""The barrier behind a collective's kernel, in what nvcc makes of it: coll_ptx_orders_test.py NVCC SOURCE_ROOT

No race detector sees device code, so this reads it: behind the last access to data come the block's barrier, a fence, the atomic
that counts blocks, a fence, a barrier, and then compare-and-swaps that release and acquire at system scope. And no load may go
through a cache that no acquire reaches. Then the same check on mutants, each of which it must refuse: else it proves nothing.
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import ptx_mutants

GATHER = "src/coll/cuda/gather_kernel.cu"
SUM = "src/coll/cuda/layer_sum_kernel.cu"
BARRIER = "src/coll/cuda/grid_barrier.cuh"
BEHIND_DATA = ["barrier", "fence", "count", "fence", "barrier", "put", "take"]
# Name -> file, text, replacement.
MUTANTS = {
    "blocks that count before their threads are done": (BARRIER, "__shared__ bool all_ok;\n  __syncthreads();", "__shared__ bool all_ok;"),
    "no fence before the count": (BARRIER, "{\n    __threadfence();\n", "{\n"),
    "no fence behind the count": (BARRIER, "*barrier.num_done = 0;\n    __threadfence();", "*barrier.num_done = 0;"),
    "threads that put before the last block is known": (BARRIER, "  }\n  __syncthreads();\n  if (!is_last ||", "  }\n  if (!is_last ||"),
    "relaxed put": (BARRIER, "PutOrder::kRelease", "PutOrder::kRelaxed"),
    "relaxed take": (BARRIER, "WaitOrder::kAcquire", "WaitOrder::kRelaxed"),
    "no barrier": (GATHER, "  barrier_at_end(at_end, ok);\n", ""),
    "data read as if nobody wrote it": (GATHER, "values[i] = vectors[first + i * kThreads]", "values[i] = __ldg(vectors + first + i * kThreads)"),
}
# The same header, in more kernels that take longer to compile.
SUM_MUTANTS = {
    "a sum that begins with its barrier": (SUM, "  const bool ok = barriers", "  barrier_at_end(barriers.at_end, true);\n  const bool ok = barriers"),
}
INSTRUCTIONS = {
    "data": r"st\.global\.(?:v[24]\.)?[ubf](?:8|16|32|64)\s+\[%rd\d+(?:\+\d+)?\], (?:\{|%r|%f|%rs)",
    "barrier": r"bar\.sync",
    "fence": r"membar\.gl|fence\.(?:sc|acq_rel)\.gpu",
    "count": r"atom\.global\.add\.u32",
    "put": r"atom\.release\.sys\.global\.cas",
    "take": r"atom\.acquire\.sys\.global\.cas",
    "relaxed": r"atom\.relaxed\.sys\.global\.cas",
    "stale": r"ld\.global\.nc",
}


def fault_of(body):
    steps = ptx_mutants.steps_of(body, INSTRUCTIONS)
    if "stale" in steps:
        return "reads data by ld.global.nc"
    if "count" not in steps:
        return "no barrier"
    at = steps.index("count") - BEHIND_DATA.index("count")
    # The count's reset is a store too, and what a wait leaves for the host.
    behind = [step for step in steps[max(at, 0):] if step != "data"]
    need = len(BEHIND_DATA)
    if at < 1 or behind[:need] != BEHIND_DATA or set(behind[need:]) - {"put", "take"}:
        return f"{' '.join(steps)}, need data, then {' '.join(BEHIND_DATA)}"
    return "" if steps[at - 1] == "data" else f"{' '.join(steps)}: the barrier is not behind the data"


def faults_in(nvcc, root, source, kernel):
    ptx = ptx_mutants.compile_to_ptx(nvcc, root, source, "--expt-relaxed-constexpr")
    bodies = [body for body in ptx_mutants.entries_of(ptx) if kernel in body.split("(")[0]]
    faults = [fault for fault in map(fault_of, bodies) if fault]
    return [f"{len(faults)} of {len(bodies)} {kernel}: {faults[0]}"] if faults else [] if bodies else [f"no {kernel}"]


def main(nvcc, root):
    folders = ("include/tandem", "src/coll", "src/cost", "src/device", "src/base")
    status = 0
    for source, kernel, mutants in ((GATHER, "gather_published", MUTANTS), (SUM, "layer_sum_kernel", SUM_MUTANTS)):
        status |= ptx_mutants.check_mutants(Path(root), folders, mutants, lambda copy: faults_in(nvcc, copy, source, kernel))
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
