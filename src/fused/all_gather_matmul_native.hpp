#pragma once

#include <cstdint>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/device/device.hpp>
#include <tandem/fused/all_gather_matmul.hpp>

#include "fused/all_gather_matmul_steps.hpp"
#include "fused/gather_problem.hpp"

namespace tandem::fused {

/// GatherProblem::by_mm: the b's whose products gemm::async_input_mm() does not make on this device. What is
/// moved and awaited is the same with them, as the other ranks know nothing of this rank's b's.
[[nodiscard]] std::uint64_t products_by_mm(const AllGatherMatmulArgs& args, const GatherProblem& problem,
                                           const Device& device);
/// "; out[0] by mm: <why>", and so on; empty if there are none.
[[nodiscard]] std::string describe_by_mm(const AllGatherMatmulArgs& args, const GatherProblem& problem,
                                         const Device& device);

/// prepare_products() of the products behind the waits.
[[nodiscard]] Result<void> prepare_native(const GatherOp& op);

/// Puts the op on its streams: pushes to peers on the side stream, and products that send to the other ones
/// and consume what comes on the caller's.
[[nodiscard]] Result<void> enqueue_native(const GatherOp& op);

}  // namespace tandem::fused
