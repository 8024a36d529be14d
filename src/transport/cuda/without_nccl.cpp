// In place of the nccl*.cpp where the compiler has no nccl.h.
#include "base/format.hpp"
#include "transport/cuda/nccl.hpp"

namespace tandem::transport::cuda {
namespace {

constexpr const char* kWhyNot = "this build was made without NCCL's header";

}  // namespace

Result<std::shared_ptr<Transport>> open_nccl(int, int, Store&, Device&) {
  return fail(ErrorCode::kUnsupported, kWhyNot);
}

Result<LibraryReport> library_report(const Config&) {
  return fail(ErrorCode::kUnsupported, kWhyNot);
}

}  // namespace tandem::transport::cuda
