#!/usr/bin/env python3
"""The memory orders of native kernels, in what nvcc makes of them: gemm_ptx_orders_test.py NVCC SOURCE_ROOT CUTLASS FLAG...

Between the poll of a chunk's signal, or of pieces' flags, and the first tensor load of what it stands for there must be
an acquire load at system scope and then a proxy fence, or the load may read what was there before; between the stores of
pieces and their flags a meeting of the warp, or of the CTA, and a fence at system scope; and no kernel may touch multicast memory.
First the kernels of one whole file, then the waits and the push by themselves, as they are and in mutants, each of which the check
must refuse.
"""
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import ptx_mutants

FOLDERS = ("include", "src")
HEADER = "include/tandem/symm/chunk_signals.cuh"
INSTANCES = "src/gemm/cuda/sm90/instances/bf16_t.cu"
PIECES = "src/gemm/cuda/sm90/piece_exchange.cuh"
WORDS = "include/tandem/cuda/device_words.cuh"
PIECE_WORDS = "src/gemm/cuda/sm90/piece_words.cuh"
MUTANTS = {
    "no acquire": (HEADER, "static_cast<void>(detail::load_acquire(signals.words + chunk));", ""),
    "no proxy fence": (HEADER, "tandem::cuda::fence_tensor_loads();", ""),
    "a fence of shared memory": (WORDS, "fence.proxy.async.global", "fence.proxy.async.shared::cta"),
    "an acquire for this GPU only": (WORDS, "ld.acquire.sys", "ld.acquire.gpu"),
    "a poll for this GPU only": (WORDS, "ld.relaxed.sys", "ld.relaxed.gpu"),
    "the fence before the acquire": (
        HEADER,
        'static_cast<void>(detail::load_acquire(signals.words + chunk));\n'
        '  tandem::cuda::fence_tensor_loads();',
        'tandem::cuda::fence_tensor_loads();\n'
        '  static_cast<void>(detail::load_acquire(signals.words + chunk));'),
}
PIECE_MUTANTS = {
    "no acquire of flags": (PIECE_WORDS, "ld.acquire.sys.global.v4", "ld.relaxed.sys.global.v4"),
    "a look for this GPU only": (PIECE_WORDS, "ld.relaxed.sys.global.v4", "ld.relaxed.gpu.global.v4"),
    "flags are acquired for this GPU only": (PIECE_WORDS, "ld.acquire.sys.global.v4", "ld.acquire.gpu.global.v4"),
    "lanes do not meet behind the acquire": (PIECES, "      __syncwarp();\n      return min(step", "      return min(step"),
    "no fence behind the word's first value": (PIECES, "announce({announced, 0});\n  __threadfence_block();", "announce({announced, 0});"),
    "an announcement that releases nothing": (PIECE_WORDS, "st.release.cta.shared", "st.relaxed.cta.shared"),
    "no acquire of the announcement": (PIECE_WORDS, "ld.acquire.cta.shared", "ld.relaxed.cta.shared"),
    "no proxy fence before the load": (PIECES, "tandem::cuda::fence_tensor_loads();", ""),
    "no fence before flags": (PIECES, "fence_system();", ""),
    "a fence for this GPU only": (PIECE_WORDS, "fence.acq_rel.sys", "fence.acq_rel.gpu"),
    "flags for this GPU only": (WORDS, "st.relaxed.sys", "st.relaxed.gpu"),
    "lanes do not meet before the fence": (PIECES, "stage);\n    __syncwarp();\n    if (lane >= peers",
                                           "stage);\n    if (lane >= peers"),
    "the fence before the stores": (PIECES, '    await_loads();',
                                    "    if (lane < push.peers) flag_pieces(push, first, end, lane);\n"
                                    '    await_loads();'),
    "no fence before a sender's flags": (PIECES, 'if (warp == 0) {\n      fence_system();',
                                          "if (warp == 0) {"),
    "warps do not meet before the fence": (PIECES, "stage);\n    __syncthreads();\n    if (warp == 0)", "stage);\n    if (warp == 0)"),
    "pieces are pushed beside the kernel before": (PIECES, "  tandem::cuda::await_kernel_before();\n  const std::int64_t begin_ns",
                                                    "  const std::int64_t begin_ns"),
    "pieces are sent beside the kernel before": (PIECES, "  tandem::cuda::await_kernel_before();\n  while (first < size)",
                                                  "  while (first < size)"),
    "stores before the loads are over": (PIECES, 'await_loads();', ""),
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
PIECE_PROBE = """
#include "gemm/cuda/sm90/piece_exchange.cuh"
using namespace tandem::gemm::cuda;
__global__ void push_probe(const __grid_constant__ PiecePush push) {
  __shared__ PieceStage<kMostPiecesTogether> stage;
  push_pieces(push, 0, 1, stage.data);
}
__global__ void send_probe(const __grid_constant__ PiecePush push) {
  extern __shared__ char shared[];
  send_pieces(push, 0, *reinterpret_cast<SenderStages*>(shared));
}
__global__ void announce_probe(tandem::symm::ChunkSignals signals, IncomingPieces pieces, int tile) {
  __shared__ unsigned announced;
  bool gave_up = false;
  announce_pieces(signals, pieces, tile, {announced, 0}, gave_up);
}
__global__ void begin_probe() {
  __shared__ unsigned announced;
  begin_announcing(announced);
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__global__ void load_probe(tandem::symm::ChunkSignals signals, IncomingPieces pieces, const void* map, unsigned shared, unsigned bar) {
  __shared__ unsigned announced;
  const unsigned step = await_announced(announced, 0, signals, pieces, 0, [] { return false; });
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2}], [%3];"
               ::"r"(shared), "l"(map), "r"(step), "r"(bar) : "memory");
}
"""
POLL = re.compile(r"\bld\.relaxed\.sys\.global\.u32")
ACQUIRE = re.compile(r"\bld\.acquire\.sys\.global\.u32")
ANNOUNCED = re.compile(r"\bld\.acquire\.cta\.shared\.u32")
FENCE = re.compile(r"\bfence\.proxy\.async\b(?!\.shared)")
AFTER_KERNEL_BEFORE = "griddepcontrol.wait"
# By whoever sends, beside tiles or not, looks for pieces or loads from a chunk, and by one warp of every CTA.
WAITS_FOR_KERNEL_BEFORE = 5
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
        elif ACQUIRE.search(line) or ANNOUNCED.search(line):
            is_acquired = True
        elif FENCE.search(line):
            num_fences += 1
            if not is_acquired:
                return ["a proxy fence without an acquire before it"]
    if num_fences == 0:
        return ["no proxy fence"]
    return [] if LOAD.search(ptx) else ["no tensor load"]


def faults_in_instance(ptx):
    waits = ptx.count(AFTER_KERNEL_BEFORE)
    if waits != WAITS_FOR_KERNEL_BEFORE:
        return [f"{waits} waits for the kernel before, need {WAITS_FOR_KERNEL_BEFORE}"]
    return faults_in(ptx)


def faults_in_instances(nvcc, root, cutlass, flags):
    """Of the kernels of one file, a list each."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        ptx_mutants.copy_of(root, FOLDERS, copy)
        headers = copy / "cutlass"  # one path in every clone, which ccache knows again
        headers.symlink_to(cutlass)
        ptx = ptx_mutants.compile_to_ptx(nvcc, copy, INSTANCES, f"-I{headers}", *flags)
    kernels = ptx_mutants.entries_of(ptx)
    if not kernels:
        sys.exit(f"no kernel was found in {INSTANCES}")
    return [faults_in_instance(kernel) for kernel in kernels]


def faults_in_probe(nvcc, root):
    (root / "probe.cu").write_text(PROBE)
    return faults_in(ptx_mutants.compile_to_ptx(nvcc, root, "probe.cu"))


def faults_in_push(ptx, meeting_of):
    """What stands before the first flag: stores of pieces, then the meeting of those that store, then the fence."""
    flag = re.search(r"\bst\.relaxed\.sys\.global\.u32", ptx)
    if not flag:
        return ["no flag at system scope"]
    data = [found.end() for found in re.finditer(r"\bst\.(?:global\.)?v4", ptx)]
    if not data or max(data) > flag.start():
        return ["data is stored behind a flag"]
    if not 0 <= ptx.find("cp.async.wait_group") < min(data):
        return ["data is stored before it is loaded"]
    if not 0 <= ptx.find(AFTER_KERNEL_BEFORE) < min(data):
        return ["data is stored beside the kernel before"]
    between = ptx[max(data):flag.start()]
    meeting, fence = (between.find(text) for text in (meeting_of, "fence.acq_rel.sys"))
    return [] if 0 <= meeting < fence else ["no meeting and fence between data and flags"]


def missing_in_order(ptx, what, *patterns):
    """Each pattern has to stand behind the one before, and nothing else of its kind further on matters."""
    at = 0
    for pattern in patterns:
        found = re.compile(pattern).search(ptx, at)
        if not found:
            return [f"{what}: no {pattern} in its place"]
        at = found.end()
    return []


def faults_in_pieces(nvcc, root):
    (root / "probe.cu").write_text(PIECE_PROBE)
    ptx = ptx_mutants.compile_to_ptx(nvcc, root, "probe.cu", "--expt-relaxed-constexpr")
    kernels = {name: text for text in ptx_mutants.entries_of(ptx) for name in ("push_probe", "send_probe", "begin_probe", "announce_probe", "load_probe")
               if name in text.split("(")[0]}
    return (faults_in_push(kernels["push_probe"], "bar.warp.sync")
            + faults_in_push(kernels["send_probe"], "bar.sync")
            + missing_in_order(kernels["begin_probe"], "first announcement", r"st\.release\.cta\.shared",
                               r"(membar|fence\.\w+)\.cta", r"barrier\.cluster\.arrive")
            + missing_in_order(kernels["announce_probe"], "announcement", r"ld\.relaxed\.sys\.global\.v4", r"ld\.acquire\.sys\.global\.v4",
                               r"bar\.warp\.sync", r"st\.release\.cta\.shared")
            + missing_in_order(kernels["load_probe"], "load", r"ld\.acquire\.cta\.shared", FENCE.pattern, LOAD.pattern))


def main(nvcc, root, cutlass, *flags):
    root = Path(root)
    status = False
    for number, faults in enumerate(faults_in_instances(nvcc, root, cutlass, flags)):
        print(f"{INSTANCES}, kernel {number}: {'; '.join(faults) or 'no fault'}")
        status |= bool(faults)
    status |= ptx_mutants.check_mutants(root, FOLDERS, MUTANTS, lambda copy: faults_in_probe(nvcc, copy))
    status |= ptx_mutants.check_mutants(root, FOLDERS, PIECE_MUTANTS, lambda copy: faults_in_pieces(nvcc, copy))
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
