#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <tandem/base/tensor.hpp>
#include <tandem/device/device.hpp>
#include <tandem/fused/report.hpp>
#include <vector>

namespace tandem::harness {

/// When the host sees a tensor through a copy of its own: where it must, or on CPUs as well. A copy stays as
/// it is while streams write the tensor.
enum class HostImage : std::uint8_t { kWhereNeeded, kAlways };

/// Tensor in the memory of a device, between two guards, full of NaN until it is written. The host sees it
/// through host(): the memory itself, or an image that download() and upload() copy.
class GuardedTensor {
 public:
  GuardedTensor() = default;
  /// `layout` may leave holes; no two elements share memory.
  GuardedTensor(Device& device, const Layout& layout, DType dtype, HostImage image = HostImage::kWhereNeeded);
  GuardedTensor(Device& device, const Dims& sizes, DType dtype, HostImage image = HostImage::kWhereNeeded)
      : GuardedTensor(device, Layout{sizes, contiguous_strides(sizes)}, dtype, image) {}

  [[nodiscard]] const TensorView& view() const { return view_; }
  [[nodiscard]] const TensorView& host() const { return host_; }
  void download() const;
  void upload() const;

  /// Element `idx`, counted row-major over the sizes, becomes value(idx), on the device too.
  void fill(const std::function<double(std::int64_t idx)>& value) const;
  /// Copies and converts `values`, in host memory and of the same sizes, to the device too.
  void fill(const TensorView& values) const;
  /// Sets every byte so that an element that is never written is seen (a NaN in every float type), and the
  /// guards; on the device too.
  void poison() const;
  /// As of the last download().
  [[nodiscard]] double at(std::int64_t idx) const;
  /// Of the whole block with holes and guards, as of the last download().
  [[nodiscard]] std::vector<std::byte> bytes() const;
  /// Whether nobody wrote beside the tensor or into its holes, as of the last download().
  [[nodiscard]] bool guards_are_whole() const;

 private:
  [[nodiscard]] std::byte* host_block() const;
  [[nodiscard]] bool holes_are_whole() const;
  [[nodiscard]] TensorView block() const;

  Device* device_ = nullptr;
  Buffer buffer_;
  std::unique_ptr<std::byte[]> image_;  ///< of the whole buffer; null where the host reads the memory itself
  TensorView view_;
  TensorView host_;
};

}  // namespace tandem::harness
