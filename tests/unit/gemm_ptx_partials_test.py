#!/usr/bin/env python3
"""The memory orders of partials that go to their owners, in what nvcc makes of them: gemm_ptx_partials_test.py NVCC SOURCE_ROOT

Each step of partial_exchange.cuh by itself: what a warp group stages, what a warp pushes, what goes to a peer directly, as
a tile of its own or a shared one, how words are awaited, and how blocks are added. As they are, and in mutants, each of which the check must refuse.
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import ptx_mutants

FOLDERS = ("include", "src")
EXCHANGE = "src/gemm/cuda/sm90/partial_exchange.cuh"
WORDS = "include/tandem/cuda/device_words.cuh"
SHARED_WORDS = "src/gemm/cuda/sm90/piece_words.cuh"
PROBES = """
#include "gemm/cuda/sm90/partial_exchange.cuh"
using namespace tandem::gemm;
using namespace tandem::gemm::cuda;
__device__ float sums[64];
struct At {
  __device__ float& operator()(int group, int row, int pair) const { return sums[group * 4 + row * 2 + pair]; }
};
/// Of one of the two forms, which a compiler then knows.
template <bool kSharesTiles>
__device__ PartialExchange known(PartialExchange exchange) {
  exchange.grid.shares_tiles = kSharesTiles;
  return exchange;
}
template <bool kSharesTiles>
__device__ void send(const PartialExchange& exchange, OwnedTile tile) {
  __shared__ PartialCounts counts;
  const PartialExchange form = known<kSharesTiles>(exchange);
  PartialTiles<32, false>(form, counts, 0).send(tile, true, At());
}
__global__ void direct_probe(const __grid_constant__ PartialExchange exchange, OwnedTile tile) { send<false>(exchange, tile); }
__global__ void shared_probe(const __grid_constant__ PartialExchange exchange, OwnedTile tile) { send<true>(exchange, tile); }
__global__ void stage_probe(const __grid_constant__ PartialExchange exchange, OwnedTile tile) {
  __shared__ PartialCounts counts;
  const PartialExchange form = known<false>(exchange);
  PartialTiles<32, false> tiles(form, counts, 0);
  for (int i = 0; i < tile.row; ++i) tiles.send(tile, false, At());
}
__global__ void push_probe(const __grid_constant__ PartialExchange exchange, OwnedTile tile) {
  __shared__ PartialCounts counts;
  __shared__ std::byte stage[2 * PartialGrid::kBytes];
  PartialPusher<32>(exchange, counts, stage).push(tile);
}
__global__ void poll_probe(const __grid_constant__ PartialExchange exchange, OwnedTile tile) {
  __shared__ PartialCounts counts;
  PartialPoller<32>(exchange, counts).await(tile);
}
__global__ void add_probe(const __grid_constant__ PartialExchange exchange, OwnedTile tile) {
  __shared__ PartialCounts counts;
  PartialTiles<32, false>(exchange, counts, 0).add(tile, At());
}
struct Store {
  __device__ void operator()(int, const BlockSums<1>& settled) const {
    for (int i = 0; i < 16; ++i) sums[i] = settled.values[i];
  }
};
__global__ void settle_probe(const __grid_constant__ PartialExchange exchange, OwnedTile tile) {
  __shared__ PartialCounts counts;
  PartialTiles<32, false>(exchange, counts, 0).settle(tile, 0, Store());
}
__global__ void end_probe(const __grid_constant__ PartialExchange exchange) { end_exchange(exchange, 1); }
"""
DATA = r"\bst\.(global\.)?v4"
MEETING = r"\bbarrier\.sync"
WARP = r"\bbar\.warp\.sync"
FENCE = r"\bfence\.acq_rel\.sys"
WORD = r"\bst\.relaxed\.sys\.global\.u32"
RELEASE = r"\bst\.release\.cta\.shared\.u32"
ACQUIRE = r"\bld\.acquire\.cta\.shared\.u32"
# Of the same address.
POLL_AND_ACQUIRE = r"\bld\.relaxed\.sys\.global\.u32\s+%r\d+, (\[%rd\d+\])[\s\S]*\bld\.acquire\.sys\.global\.u32\s+%r\d+, \1"
ORDERS = {
    "direct_probe": (DATA, MEETING, FENCE, WORD),
    "shared_probe": (DATA, MEETING, FENCE, WORD),
    "stage_probe": (ACQUIRE, DATA, MEETING, RELEASE),
    "push_probe": (ACQUIRE, WARP, r"\bcp\.async\.cg", r"\bcp\.async\.wait_group 0", DATA, WARP, FENCE, WORD, WARP, RELEASE),
    "poll_probe": (POLL_AND_ACQUIRE, WARP, RELEASE),
    "add_probe": (ACQUIRE, r"\bld\.global\.cg\.v4"),
    "settle_probe": (ACQUIRE, r"\bld\.global\.cg\.v4"),
    "end_probe": (r"\b(membar|fence\.\w+)\.(gl|gpu)", r"\batom\.add\.u32"),
}
MUTANTS = {
    "no fence before words": (EXCHANGE, "  fence_system();\n", ""),
    "a fence for this GPU only": (SHARED_WORDS, "fence.acq_rel.sys", "fence.acq_rel.gpu"),
    "words for this GPU only": (WORDS, "st.relaxed.sys", "st.relaxed.gpu"),
    "words before the group has met": (EXCHANGE, "    sync_warp_group(group_);\n    if (is_last)", "    if (is_last)"),
    "words of shared tiles before the group has met": (EXCHANGE, "    sync_warp_group(group_);\n    for_owning_peers",
                                                       "    for_owning_peers"),
    "no meeting of the warp that pushes": (EXCHANGE, "number, group));\n      __syncwarp();", "number, group));"),
    "strips are staged without a release": (SHARED_WORDS, "st.release.cta.shared", "st.relaxed.cta.shared"),
    "strips are taken without an acquire": (SHARED_WORDS, "ld.acquire.cta.shared", "ld.relaxed.cta.shared"),
    "blocks are stored before they are loaded": (EXCHANGE, "      await_loads();\n", ""),
    "words are not acquired": (EXCHANGE, "if (is_any) static_cast<void>(symm::detail::load_acquire(word));", ""),
    "words are acquired for this GPU only": (WORDS, "ld.acquire.sys", "ld.acquire.gpu"),
    "a poll for this GPU only": (WORDS, "ld.relaxed.sys", "ld.relaxed.gpu"),
    "lanes do not meet behind the acquire": (EXCHANGE, "await_blocks(strip, group);\n      __syncwarp();", "await_blocks(strip, group);"),
    "blocks through the first-level cache": (SHARED_WORDS, "__ldcg(reinterpret_cast<const uint4*>(from))",
                                             "*reinterpret_cast<const uint4*>(from)"),
    "no fence before a party ends": (EXCHANGE, "  __threadfence();\n", ""),
}


def faults_in(nvcc, root):
    (root / "probe.cu").write_text(PROBES)
    kernels = ptx_mutants.entries_of(ptx_mutants.compile_to_ptx(nvcc, root, "probe.cu", "--expt-relaxed-constexpr"))
    faults = []
    for name, patterns in ORDERS.items():
        ptx = next((text for text in kernels if name in text.split("(")[0]), "")
        at = 0
        for pattern in patterns:
            found = re.compile(pattern).search(ptx, at)
            if not found:
                faults.append(f"{name}: no {pattern} in its place")
                break
            at = found.end()
    return faults


if __name__ == "__main__":
    nvcc, source_root = sys.argv[1:3]
    sys.exit(ptx_mutants.check_mutants(Path(source_root), FOLDERS, MUTANTS, lambda copy: faults_in(nvcc, copy)))
