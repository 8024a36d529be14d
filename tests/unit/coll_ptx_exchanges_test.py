#!/usr/bin/env python3
"""The exchange of small pieces, in what nvcc makes of its kernels: coll_ptx_exchanges_test.py NVCC SOURCE_ROOT

No race detector sees device code, so this reads it: pushes, the block's barrier, a store that releases at system scope, polls, a
load of what was polled that acquires at system scope, a barrier that also tells of failures, and only then loads of boxes and
stores of results; no load through a cache that no acquire reaches. Then the same check on mutants, each of which it must refuse:
else it proves nothing.
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import ptx_mutants

KERNELS = "src/coll/cuda/exchange_kernels.cu"
GATHER = "src/coll/cuda/gather_kernel.cu"
SUM = "src/coll/cuda/layer_sum_kernel.cu"
HEADER = "src/coll/cuda/mailboxes.cuh"
# Name -> file, text, replacement.
MUTANTS = {
    "a relaxed word": (HEADER, "store_release(word(", "store_relaxed(word("),
    "a word before all threads have pushed": (HEADER, "    __syncthreads();\n    if (step < world)", "    if (step < world)"),
    "a wait that does not acquire": (HEADER, "    static_cast<void>(symm::detail::load_acquire(from));\n", ""),
    "a wait that acquires before it has seen": (HEADER, "    const bool has_come =",
                                                "    static_cast<void>(symm::detail::load_acquire(from));\n    const bool has_come ="),
    "an epoch that stays": (HEADER, "    if (threadIdx.x == 0) *epoch() = epoch_;\n", ""),
    "threads that do not wait for those that wait": (HEADER, "__syncthreads_and(ok ? 1 : 0) != 0", "ok"),
    "no wait": (KERNELS, "  if (!exchange.meet()) return;\n", ""),
    "shards read before they are published": (GATHER, "ok = exchange.meet()", "ok = true"),
    "a sum that does not wait": (SUM, "barriers.before.num_pieces == 0 || Exchange(barriers.before).meet()", "true"),
    "a box read as if nobody wrote it": (KERNELS, "out_of(piece)[i] = box[i]", "out_of(piece)[i] = __ldg(box + i)"),
}
INSTRUCTIONS = {
    "store": r"st\.global\.(?:v[24]\.)?[ubf](?:8|16|32|64)\s",
    "load": r"ld\.global\.(?:v[24]\.)?[ubf](?:8|16|32|64)\s",
    "stale": r"ld\.global\.nc",
    "barrier": r"bar\.sync",
    "vote": r"bar\.red",
    "release": r"st\.release\.sys",
}


def fault_of(body):
    # What a sum reads of its peers was made before the kernel: nothing is pushed.
    before = ["barrier"] if "layer_sum_kernel" in body.split("(")[0] else ["store", "barrier"]
    steps = ptx_mutants.steps_of(body, INSTRUCTIONS)
    if "stale" in steps:
        return "reads data by ld.global.nc"
    if "release" not in steps or "vote" not in steps:
        return f"{' '.join(steps)}: no wait"
    release, vote = steps.index("release"), steps.index("vote")
    if steps[release - len(before):release] != before:
        return f"{' '.join(steps)}: no barrier between the pushes and the release"
    polls, acquires = (list(re.finditer(rf"ld\.{order}\.sys\.global\.u32\s+%r\d+, (\[[^\]]+\])", body)) for order in ("relaxed", "acquire"))
    behind = [acquire for acquire in acquires if any(poll[1] == acquire[1] for poll in polls)]
    if len(behind) != 1 or behind[0].start() < min(poll.start() for poll in polls if poll[1] == behind[0][1]):
        return f"polls {sorted({poll[1] for poll in polls})} and acquires {[acquire[1] for acquire in acquires]}"
    if "store" not in steps[release:vote]:
        return f"{' '.join(steps)}: the epoch is not counted"
    if vote < release or steps[vote + 1:vote + 3] != ["load", "store"]:
        return f"{' '.join(steps)}: boxes are not read behind the vote"
    return ""


def faults_in(nvcc, root):
    """Of the first file that has any: each takes seconds to compile."""
    for source in (KERNELS, GATHER, SUM):
        ptx = ptx_mutants.compile_to_ptx(nvcc, root, source)
        bodies = [body for body in ptx_mutants.entries_of(ptx)
                  if re.search("exchanged_|gather_published|layer_sum", body.split("(")[0])]
        faults = [fault for fault in map(fault_of, bodies) if fault]
        if faults or not bodies:
            return [f"{len(faults)} of {len(bodies)}: {faults[0]}" if faults else f"no kernel in {source}"]
    return []


def main(nvcc, root):
    folders = ("include/tandem", "src/coll", "src/cost", "src/device", "src/base")
    return ptx_mutants.check_mutants(Path(root), folders, MUTANTS, lambda copy: faults_in(nvcc, copy))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
