#include "mlp_activation.hpp"

#include <fmt/format.h>

#include <cmath>
#include <tandem/base/numeric.hpp>
#include <tandem/cpu/launch.hpp>
#include <tandem/device/device.hpp>

#ifdef TANDEM_HAS_CUDA
#include <tandem/cuda/native_stream.hpp>

#include "mlp_activation_cuda.hpp"
#endif

namespace tandem::cli {
namespace {

BF16 rounded_to(float value, BF16 /*type*/) {
  return to_bf16(value);
}
F8E4M3 rounded_to(float value, F8E4M3 /*type*/) {
  return to_f8e4m3(value);
}

template <class Out>
Result<void> enqueue_on_cpu(const Activation& activation, Stream& stream) {
  const auto* gate = activation.gate.data_as<const BF16>();
  const auto* up = activation.up.data_as<const BF16>();
  auto* activated = activation.activated.data_as<Out>();
  return cpu::launch(stream, cpu::Task([=, count = activation.activated.numel(),
                                        scale = activation.scale]() -> Result<void> {
                       for (std::int64_t i = 0; i < count; ++i) {
                         const float g = to_f32(gate[i]);
                         activated[i] = rounded_to(g / (1.0F + std::exp(-g)) * to_f32(up[i]) / scale, Out());
                       }
                       return {};
                     }));
}

#ifdef TANDEM_HAS_CUDA
Result<void> check_launch(int code) {
  if (code == 0) return {};
  return fail(ErrorCode::kDriver, fmt::format("silu_mul: CUDA error {}", code), code);
}
#endif

}  // namespace

Result<void> enqueue_activation(const Activation& activation, Stream& stream) {
#ifdef TANDEM_HAS_CUDA
  if (stream.device().id().kind == DeviceKind::kCuda) {
    const auto native = tandem::cuda::native_stream(stream);
    if (!native) return tl::unexpected(native.error());
    return check_launch(cuda::launch_silu_mul({.gate = activation.gate.data,
                                               .up = activation.up.data,
                                               .activated = activation.activated.data,
                                               .is_f8 = activation.activated.dtype == DType::kF8E4M3,
                                               .scale = activation.scale,
                                               .count = activation.activated.numel()},
                                              *native));
  }
#endif
  return activation.activated.dtype == DType::kF8E4M3 ? enqueue_on_cpu<F8E4M3>(activation, stream)
                                                      : enqueue_on_cpu<BF16>(activation, stream);
}

Result<void> prepare_activation([[maybe_unused]] const Device& device) {
#ifdef TANDEM_HAS_CUDA
  if (device.id().kind == DeviceKind::kCuda) return check_launch(cuda::load_silu_mul());
#endif
  return {};
}

}  // namespace tandem::cli
