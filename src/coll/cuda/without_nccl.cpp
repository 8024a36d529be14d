// In place of the nccl_*.cpp where the compiler has no nccl.h.
#include "base/format.hpp"
#include "coll/cuda/library_report.hpp"
#include "coll/cuda/nccl_all_gather.hpp"

namespace tandem::coll::cuda {

Result<bool> nccl_all_gather(const AllGatherArgs&, const EndBarrier&, Stream&) {
  return false;
}

Result<LibraryReport> library_report(const Config&) {
  return fail(ErrorCode::kUnsupported, "this build was made without NCCL's header");
}

}  // namespace tandem::coll::cuda
