#pragma once

// Everything but the file formats and captured graphs. Include this to use tandem.
#include <tandem/backend/backend.hpp>
#include <tandem/base/convert.hpp>
#include <tandem/base/shard.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/bootstrap/launcher.hpp>
#include <tandem/bootstrap/thread_ranks.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/dlpack.hpp>
#include <tandem/fused/all_gather_matmul.hpp>
#include <tandem/fused/all_gather_scaled_matmul.hpp>
#include <tandem/fused/layout.hpp>
#include <tandem/fused/matmul_all_reduce.hpp>
#include <tandem/fused/matmul_reduce_scatter.hpp>
#include <tandem/fused/measure_gpus.hpp>
#include <tandem/fused/scaled_matmul_all_reduce.hpp>
#include <tandem/fused/scaled_matmul_reduce_scatter.hpp>
#include <tandem/gemm/async_input_mm.hpp>
#include <tandem/gemm/matmul_4bit.hpp>
#include <tandem/gemm/mm.hpp>
#include <tandem/gemm/packed_b.hpp>
#include <tandem/gemm/quantize.hpp>
#include <tandem/gemm/scaled_mm.hpp>
#include <tandem/symm/symmetric_memory.hpp>
#include <tandem/timeline/timeline.hpp>
#include <tandem/trace/summary.hpp>
