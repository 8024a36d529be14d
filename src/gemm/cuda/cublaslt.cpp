#include "gemm/cuda/cublaslt.hpp"

#include "base/alignment.hpp"
#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"
#include "gemm/cuda/epilogue_kernel.hpp"

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

/// Where cuBLASLt looks for what it adds; out where it adds nothing.
const Operand& addend_of(const Operands& operands) {
  return operands.addend() == nullptr ? operands.out() : *operands.addend();
}

Result<void> no_such(const Product& product) {
  return failf(ErrorCode::kUnsupported, "mm: cuBLASLt has no choice number {} for {}", product.heuristic,
               to_string(product));
}

}  // namespace

CublasLt::CublasLt(const Device& device, const Implementation& fallback)
    : fallback_(fallback), gpu_(device.id().index), plans_(max_products(device)) {
  if (device.config().batch_invariant) {
    usable_ = Support::no("cuBLASLt may add along k in another order where m is another");
    return;
  }
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
  if (!is_there(product, why_not)) return false;
  if (!usable_) return refuse(why_not, usable_.why_not);
  const std::string_view refusal = library_refusal(product);
  return refusal.empty() || refuse(why_not, refusal);
}

Result<void> CublasLt::run(const Product& product, const ProductArgs& args, Stream& stream) const {
  TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "mm"));
  TANDEM_ASSIGN(std::optional<Planned> planned, plan_of(product, args, *on));
  if (!planned) return product.heuristic > 0 ? no_such(product) : fallback_.run(product, args, stream);

  Operands& operands = planned->operands;
  const LtPlan& plan = *planned->plan;
  const std::int64_t copies_bytes = operands.scratch_bytes();
  TANDEM_ASSIGN(std::byte* const scratch, scratch_.reserve(copies_bytes + plan.workspace_bytes(), *on));
  operands.place(scratch);
  return on->enqueue("mm", Waits::kForNobody, [&](cudaStream_t native) -> Result<void> {
    TANDEM_TRY(operands.copy_in(stream));
    TANDEM_TRY(plan.launch({.a = operands.a().taken.data,
                            .b = operands.b().taken.data,
                            .addend = addend_of(operands).taken.data,
                            .out = operands.out().taken.data,
                            .a_scale = operands.a_scale().taken.data,
                            .b_scale = operands.b_scale().taken.data,
                            .workspace = scratch == nullptr ? nullptr : scratch + copies_bytes},
                           native));
    if (!planned->has_pass) return operands.copy_out(stream);
    return check_cuda("mm: epilogue",
                      launch_epilogue(epilogue_pass_of(product, args, operands.out()), native));
  });
}

Result<void> CublasLt::prepare(const Product& product, const ProductArgs& like, Stream& stream) const {
  const CurrentDevice current(gpu_);
  TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "mm: prepare"));
  TANDEM_ASSIGN(const std::optional<Planned> planned, plan_of(product, like, *on));
  if (!planned) {
    return product.heuristic > 0 ? no_such(product) : fallback_.prepare(product, like, stream);
  }
  LtPlan& plan = *planned->plan;
  TANDEM_TRY(scratch_.reserve(planned->operands.scratch_bytes() + plan.workspace_bytes(), *on));
  if (stream.is_capturing()) return {};
  return plan.load_once([&] {
    on->settle_before_load();
    return load(plan, planned->operands, stream.device());
  });
}

Result<std::optional<CublasLt::Planned>> CublasLt::plan_of(const Product& product, const ProductArgs& args,
                                                           const tandem::cuda::CudaStream& stream) const {
  for (const LibraryShare& share : library_shares_of(product)) {
    const Operands operands(args, share);
    const DType made = operands.out().taken.dtype;
    const auto added = operands.addend() == nullptr ? std::nullopt : std::optional(made);
    const Product of_library{.m = product.m,
                             .n = product.n,
                             .k = product.k,
                             .a = product.a,
                             .b = product.b,
                             .out = made,
                             .a_scale = share.a_scale,
                             .b_scale = share.b_scale,
                             .fast_accum = product.fast_accum,
                             .epilogue = {.addend = added},
                             .heuristic = product.heuristic};
    TANDEM_ASSIGN(std::shared_ptr<LtPlan> plan, plan_for({.product = of_library,
                                                          .a = matrix_of(operands.a()),
                                                          .b = matrix_of(operands.b()),
                                                          .out = matrix_of(operands.out()),
                                                          .addend = matrix_of(addend_of(operands))},
                                                         stream));
    if (plan->has_algorithm()) return Planned{operands, std::move(plan), !share.rounds};
  }
  return std::nullopt;
}

Result<std::shared_ptr<LtPlan>> CublasLt::plan_for(const LtProblem& key,
                                                   const tandem::cuda::CudaStream& stream) const {
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
// memory that nobody looks at: all matrices and scales are the same, but for an addend that is not out.
Result<void> CublasLt::load(const LtPlan& plan, const Operands& operands, Device& device) const {
  const std::int64_t matrix_bytes = aligned(operands.most_bytes(), kScratchAlignment);
  const std::int64_t addend_at = &addend_of(operands) == &operands.out() ? 0 : matrix_bytes;
  const std::int64_t workspace_at = addend_at + matrix_bytes;
  const auto memory = device.allocate(workspace_at + plan.workspace_bytes() + kScratchAlignment);
  // The kernel is then loaded by the first run.
  if (!memory && memory.error().code() == ErrorCode::kOutOfMemory) return {};
  TANDEM_TRY(memory);

  std::byte* const matrix = aligned_start(*memory);
  Result<void> done;
  // Waits whatever came of the launch: the memory goes.
  const auto waited = check_cuda("mm: load", loading_->run([&](cudaStream_t on) {
    done = plan.launch({.a = matrix,
                        .b = matrix,
                        .addend = matrix + addend_at,
                        .out = matrix,
                        .a_scale = matrix,
                        .b_scale = matrix,
                        .workspace = matrix + workspace_at},
                       on);
    return cudaSuccess;
  }));
  return done ? waited : done;
}

std::optional<double> CublasLt::predicted_us(const Product& product, const cost::GpuRates& gpu) const {
  return library_us(product, gpu);
}

}  // namespace tandem::gemm::cuda
