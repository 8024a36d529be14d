#include "gemm/cuda/cublaslt.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/try.hpp"
#include "cost/products.hpp"
#include "device/cuda/cuda_error.hpp"
#include "gemm/cuda/rounding.hpp"

namespace tandem::gemm::cuda {
namespace {

using tandem::cuda::check_cuda;
using tandem::cuda::CurrentDevice;
using tandem::cuda::Waits;

LtProblem::Matrix matrix_of(const Operand& operand) {
  return {.is_column_major = operand.is_column_major,
          .leading = operand.leading,
          .alignment = operand.alignment()};
}

Result<void> no_such(const Product& product) {
  return failf(ErrorCode::kUnsupported, "mm: cuBLASLt has no choice number {} for {}", product.heuristic,
               to_string(product));
}

/// Bytes from an operand's first element to behind its last, to a multiple of 256.
std::int64_t extent_bytes(const Operand& operand) {
  const std::int64_t lines = operand.taken.size(operand.is_column_major ? 1 : 0);
  return (lines * operand.leading * size_bytes(operand.taken.dtype) + 255) / 256 * 256;
}

}  // namespace

CublasLt::CublasLt(const Device& device, const Implementation& fallback)
    : fallback_(fallback), gpu_(device.id().index), plans_(max_products(device)) {
  if (const auto opened = open(device); !opened) usable_ = Support::no(opened.error().text());
}

Result<void> CublasLt::open(const Device& device) {
  const CurrentDevice current(gpu_);
  TANDEM_ASSIGN(api_, CublasLtApi::load(device.config()));
  TANDEM_ASSIGN(handle_, shared_handle(*api_, gpu_));
  TANDEM_ASSIGN(loading_, tandem::cuda::InternalStream::of(gpu_));
  return {};
}

bool CublasLt::accepts(const Product& product, std::string* why_not) const {
  if (!is_for_mm(product, why_not)) return false;
  if (!usable_) return refuse(why_not, usable_.why_not);
  return (product.m > 0 && product.n > 0 && product.k > 0) ||
         refuse(why_not, "cuBLASLt takes no empty matrices");
}

Result<void> CublasLt::run(const Product& product, const ProductArgs& args, Stream& stream) const {
  TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "mm"));
  Operands operands(args);
  TANDEM_ASSIGN(const std::shared_ptr<LtPlan> plan, plan_for(product, operands, *on));
  if (!plan->has_algorithm())
    return product.heuristic > 0 ? no_such(product) : fallback_.run(product, args, stream);

  const std::int64_t copies_bytes = operands.scratch_bytes();
  TANDEM_ASSIGN(std::byte* const scratch, scratch_.reserve(copies_bytes + plan->workspace_bytes(), *on));
  operands.place(scratch);
  return on->enqueue("mm", Waits::kForNobody, [&](cudaStream_t native) -> Result<void> {
    TANDEM_TRY(operands.copy_in(args.accumulate, stream));
    TANDEM_TRY(plan->launch({.a = operands.a().taken.data,
                             .b = operands.b().taken.data,
                             .out = operands.out().taken.data,
                             .workspace = scratch == nullptr ? nullptr : scratch + copies_bytes},
                            native));
    if (args.bias == nullptr) return operands.copy_out(stream);
    return check_cuda("mm: bias", launch_round(rounding_of(operands.out(), *args.bias), native));
  });
}

Result<void> CublasLt::prepare(const Product& product, const ProductArgs& like, Stream& stream) const {
  const CurrentDevice current(gpu_);
  TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "mm: prepare"));
  const Operands operands(like);
  TANDEM_ASSIGN(const std::shared_ptr<LtPlan> plan, plan_for(product, operands, *on));
  if (!plan->has_algorithm()) {
    return product.heuristic > 0 ? no_such(product) : fallback_.prepare(product, like, stream);
  }
  TANDEM_TRY(scratch_.reserve(operands.scratch_bytes() + plan->workspace_bytes(), *on));
  if (stream.is_capturing()) return {};
  return plan->load_once([&] {
    on->settle_before_load();
    return load(*plan, operands, stream.device());
  });
}

Result<std::shared_ptr<LtPlan>> CublasLt::plan_for(const Product& product, const Operands& operands,
                                                   const tandem::cuda::CudaStream& stream) const {
  Product without_bias = product;
  without_bias.epilogue.bias.reset();
  without_bias.out = operands.out().taken.dtype;
  const LtProblem key{.product = without_bias,
                      .a = matrix_of(operands.a()),
                      .b = matrix_of(operands.b()),
                      .out = matrix_of(operands.out())};
  const auto find = [&]() -> std::shared_ptr<LtPlan> {
    const auto* const found = plans_.find(key);
    return found == nullptr ? nullptr : *found;
  };
  {
    const std::lock_guard lock(plans_mutex_);
    if (auto known = find()) return known;
  }
  // cuBLASLt loads kernels while it chooses one.
  stream.settle_before_load();
  const CurrentDevice current(gpu_);
  const std::lock_guard lock(plans_mutex_);
  if (auto known = find()) return known;
  TANDEM_ASSIGN(auto plan, LtPlan::make(*api_, handle_, key));
  return plans_.insert(key, std::move(plan));
}

// cuBLASLt loads a kernel when it first launches it, and loading one may wait for every kernel that runs: for
// good, where one of them waits for a signal that this thread has yet to send. So the product runs once, on
// memory that nobody looks at: all three matrices are the same.
Result<void> CublasLt::load(const LtPlan& plan, const Operands& operands, Device& device) const {
  const std::int64_t matrix_bytes =
      std::max({extent_bytes(operands.a()), extent_bytes(operands.b()), extent_bytes(operands.out())});
  const auto memory = device.allocate(matrix_bytes + plan.workspace_bytes() + kScratchAlignment);
  // The kernel is then loaded by the first run.
  if (!memory && memory.error().code() == ErrorCode::kOutOfMemory) return {};
  TANDEM_TRY(memory);

  std::byte* const matrix = aligned_start(*memory);
  Result<void> done;
  // Waits whatever came of the launch: the memory goes.
  const auto waited = check_cuda("mm: load", loading_->run([&](cudaStream_t on) {
    done = plan.launch({.a = matrix, .b = matrix, .out = matrix, .workspace = matrix + matrix_bytes}, on);
    return cudaSuccess;
  }));
  return done ? waited : done;
}

std::optional<double> CublasLt::predicted_us(const Product& product) const {
  if (size_bytes(product.a) != 2) return std::nullopt;
  return cost::vendor_us(product.m, product.n, product.k);
}

}  // namespace tandem::gemm::cuda
