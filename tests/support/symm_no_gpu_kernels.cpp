#include "support/symm_gpu_kernels.hpp"

namespace tandem::testing {
namespace {

Result<void> refuse() {
  return fail(ErrorCode::kUnsupported, "this build has no CUDA kernels");
}

}  // namespace

Result<void> launch_meeting_rounds_on_gpu(Stream& /*stream*/, const symm::KernelHandle& /*handle*/,
                                          int /*num_rounds*/, std::uint32_t* /*num_wrong*/) {
  return refuse();
}

Result<void> launch_wait_on_gpu(Stream& /*stream*/, const symm::KernelHandle& /*handle*/, int /*src*/,
                                int /*channel*/) {
  return refuse();
}

Result<void> launch_sync_blocks_on_gpu(Stream& /*stream*/, const symm::KernelHandle& /*handle*/,
                                       int /*block*/) {
  return refuse();
}

}  // namespace tandem::testing
