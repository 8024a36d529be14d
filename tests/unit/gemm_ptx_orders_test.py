#!/usr/bin/env python3
"""The memory orders of native kernels, in what nvcc makes of them: gemm_ptx_orders_test.py NVCC SOURCE_ROOT FLAG...

Between the poll of a chunk's signal and the first tensor load of the chunk there must be an acquire load at system scope
and then a proxy fence, or the load may read what was there before; and no kernel may touch multicast memory. First one
whole instance, then the wait by itself, as it is and in mutants, each of which the check must refuse.
"""
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import ptx_mutants

FOLDERS = ("include", "src")
HEADER = "include/tandem/symm/chunk_signals.cuh"
INSTANCE = "src/gemm/cuda/sm90/instances/bf16_t_128_1x1.cu"
DEVICE_HEADER = "include/tandem/symm/kernel_device.cuh"
MUTANTS = {
    "no acquire": (HEADER, "static_cast<void>(detail::load_acquire(signals.words + chunk));", ""),
    "no proxy fence": (HEADER, 'asm volatile("fence.proxy.async.global;" ::: "memory");', ""),
    "a fence of shared memory": (HEADER, "fence.proxy.async.global", "fence.proxy.async.shared::cta"),
    "an acquire for this GPU only": (DEVICE_HEADER, "ld.acquire.sys", "ld.acquire.gpu"),
    "a poll for this GPU only": (DEVICE_HEADER, "ld.relaxed.sys", "ld.relaxed.gpu"),
    "the fence before the acquire": (
        HEADER,
        'static_cast<void>(detail::load_acquire(signals.words + chunk));\n'
        '  asm volatile("fence.proxy.async.global;" ::: "memory");',
        'asm volatile("fence.proxy.async.global;" ::: "memory");\n'
        '  static_cast<void>(detail::load_acquire(signals.words + chunk));'),
}
# The wait in front of something that looks like a tensor load.
PROBE = """
#include <tandem/symm/chunk_signals.cuh>
__global__ void probe(tandem::symm::ChunkSignals signals, int chunk, const void* map, unsigned shared, unsigned bar) {
  if (!tandem::symm::await_chunk(signals, chunk)) return;
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2}], [%3];"
               ::"r"(shared), "l"(map), "r"(chunk), "r"(bar) : "memory");
}
"""
POLL = re.compile(r"\bld\.relaxed\.sys\.global\.u32")
ACQUIRE = re.compile(r"\bld\.acquire\.sys\.global\.u32")
FENCE = re.compile(r"\bfence\.proxy\.async\b(?!\.shared)")
LOAD = re.compile(r"\bcp\.async\.bulk\.tensor\.\dd\.shared::cluster\.global")
BLOCK_END = re.compile(r"^\s*\$\w+:|\bbra\b|\bret\b")


def faults_in(ptx):
    """A proxy fence has to stand behind an acquire load, in one basic block, and there has to be a poll before them."""
    if "multimem" in ptx:
        return ["touches multicast memory"]
    if not POLL.search(ptx):
        return ["no poll at system scope"]
    is_acquired = False
    num_fences = 0
    for line in ptx.splitlines():
        if BLOCK_END.search(line):
            is_acquired = False
        elif ACQUIRE.search(line):
            is_acquired = True
        elif FENCE.search(line):
            num_fences += 1
            if not is_acquired:
                return ["a proxy fence without an acquire before it"]
    if num_fences == 0:
        return ["no proxy fence"]
    return [] if LOAD.search(ptx) else ["no tensor load"]


def faults_in_instance(nvcc, root, flags):
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        ptx_mutants.copy_of(root, FOLDERS, copy)
        return faults_in(ptx_mutants.compile_to_ptx(nvcc, copy, INSTANCE, *flags))


def faults_in_probe(nvcc, root):
    (root / "probe.cu").write_text(PROBE)
    return faults_in(ptx_mutants.compile_to_ptx(nvcc, root, "probe.cu"))


def main(nvcc, root, *flags):
    root = Path(root)
    faults = faults_in_instance(nvcc, root, flags)
    print(f"{INSTANCE}: {'; '.join(faults) or 'no fault'}")
    return bool(faults) | ptx_mutants.check_mutants(root, FOLDERS, MUTANTS, lambda copy: faults_in_probe(nvcc, copy))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
