#include "fused/call/scaled_checks.hpp"

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::fused {

Result<void> check_f8(std::string_view who, const Named& named, const Device& device) {
  if (!is_f8(named.view->dtype)) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} is {}, need f8e4m3 or f8e5m2", who, to_string(named),
                 to_string(named.view->dtype));
  }
  return check_tensor(who, named, device);
}

Result<void> check_out_type(std::string_view who, const Named& named, const Device& device) {
  const DType dtype = named.view->dtype;
  if (!is_f8(dtype) && dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} is {}, need f32, bf16, f16 or f8", who,
                 to_string(named), to_string(dtype));
  }
  return check_tensor(who, named, device);
}

Result<void> check_scale(std::string_view who, const Named& named, const Dims& each, const Device& device) {
  const TensorView& scale = *named.view;
  if (scale.dtype != DType::kF32 || (scale.numel() != 1 && !(scale.sizes == each))) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} is {} {}, need f32 of one element or {}", who,
                 to_string(named), to_string(scale.dtype), to_string(scale.sizes), to_string(each));
  }
  return check_tensor(who, named, device);
}

Result<void> check_epilogue(std::string_view who, int idx, const TensorView* bias,
                            const TensorView* result_scale, std::int64_t n, const Device& device) {
  if (bias != nullptr) {
    const Named named{"bias", idx, bias};
    TANDEM_TRY(check_out_type(who, named, device));
    if (!(bias->sizes == Dims{n})) {
      return failf(ErrorCode::kInvalidArgument, "{}: {} has sizes {}, need {}: all columns", who,
                   to_string(named), to_string(bias->sizes), to_string(Dims{n}));
    }
  }
  if (result_scale == nullptr) return {};
  return check_scale(who, {"result_scale", idx, result_scale}, {1}, device);
}

gemm::Scale scale_of_b(gemm::Scale a) {
  switch (a) {
    case gemm::Scale::kNone:
      return gemm::Scale::kNone;
    case gemm::Scale::kVector128:
      return gemm::Scale::kBlock128;
    default:
      return gemm::Scale::kColumn;
  }
}

Result<void> check_runs(const gemm::ScaledProblem& problem, const Device& device) {
  const Support support = gemm::can_run(problem, device);
  if (support) return {};
  return failf(ErrorCode::kUnsupported, "{} cannot run on {}: {}", gemm::to_string(problem),
               tandem::to_string(device.id()), support.why_not);
}

}  // namespace tandem::fused
