#include "gemm/cuda/sm90/lone_waits.hpp"

#include <chrono>
#include <tandem/symm/kernel_control.hpp>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::gemm::cuda {
namespace {

/// What a KernelControl points to, beside it in the GPU's memory: words that nobody writes but the kernels.
struct Words {
  symm::KernelControl control;
  std::uint32_t no_error = 0;
  std::uint32_t waits_for = 0;
  std::uint32_t has_given_up = symm::KernelControl::kWaits;
};

}  // namespace

Result<std::shared_ptr<LoneWaits>> LoneWaits::make(Device& device) {
  std::shared_ptr<LoneWaits> waits(new LoneWaits);
  TANDEM_ASSIGN(waits->fault_, symm::cuda::FaultRecord::take());
  TANDEM_ASSIGN(waits->words_, device.allocate(sizeof(Words)));
  auto* const at = static_cast<Words*>(waits->words_.data());
  Words words;
  words.control.fault = waits->fault_.address();
  words.control.group_error = &at->no_error;
  words.control.left = &at->no_error;
  words.control.waits_for = &at->waits_for;
  words.control.has_given_up = &at->has_given_up;
  TANDEM_TRY(
      device.copy_from_host(&words, TensorView::contiguous(at, {sizeof(Words)}, DType::kU8, device.id())));
  const std::chrono::nanoseconds timeout = device.config().op_timeout;
  waits->handle_.timeout_ns = timeout.count();
  waits->handle_.control = &at->control;
  return waits;
}

Result<void> LoneWaits::status() {
  const auto found = fault_.read();
  if (!found) return {};
  return failf(ErrorCode::kTimeout,
               "async_input_mm: chunk {} of a had not arrived after {} ms: its signal is {}, expected {}",
               found->channel, found->waited_ns / 1'000'000, found->seen, found->expected);
}

}  // namespace tandem::gemm::cuda
