// In place of the nccl_*.cpp where the compiler has no nccl.h.
#include "base/format.hpp"
#include "coll/cuda/algorithms.hpp"
#include "coll/cuda/library_report.hpp"

namespace tandem::coll::cuda {
namespace {

constexpr const char* kWhyNot = "this build was made without NCCL's header";

Answer can_run(const Problem&, const Device&) {
  return Answer::no(kWhyNot);
}

}  // namespace

const GatherAlgorithm kGatherByNccl = {
    .name = "nccl", .can_run = &can_run, .workspace_bytes = &one_part_bytes, .run = nullptr};

Result<LibraryReport> library_report(const Config&) {
  return fail(ErrorCode::kUnsupported, kWhyNot);
}

}  // namespace tandem::coll::cuda
