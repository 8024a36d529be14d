#pragma once

#include <gtest/gtest.h>

#include <tandem/device/device.hpp>
#include <utility>

#include "support/guarded_bytes.hpp"

namespace tandem::testing {

/// Memory of any device between two guards, and an image of all of it on the host. Tests read and write the
/// image; upload() and download() move it.
class DeviceBytes {
 public:
  /// A copy of `image`, on the device too.
  DeviceBytes(Device& device, GuardedBytes image) : device_(device), image_(std::move(image)) {
    block_ = device_.allocate_tensor({image_.size_bytes_held() + 2 * GuardedBytes::kGuardBytes}, DType::kU8)
                 .value();
    upload();
  }
  DeviceBytes(Device& device, const Dims& sizes, DType dtype)
      : DeviceBytes(device, GuardedBytes(sizes, dtype)) {}

  [[nodiscard]] GuardedBytes& image() { return image_; }
  void upload() { expect_moved(device_.copy_from_host(start_of_image(), block_.view())); }
  /// What streams write must be done.
  void download() { expect_moved(device_.copy_to_host(block_.view(), start_of_image())); }
  /// On the device.
  [[nodiscard]] TensorView view(const Dims& sizes, DType dtype) const {
    return TensorView::contiguous(block_.view().data_as<std::byte>() + GuardedBytes::kGuardBytes, sizes,
                                  dtype, device_.id());
  }

 private:
  static void expect_moved(const Result<void>& moved) { EXPECT_TRUE(moved) << moved.error().to_string(); }
  std::byte* start_of_image() { return image_.data() - GuardedBytes::kGuardBytes; }

  Device& device_;
  GuardedBytes image_;
  Tensor block_;
};

}  // namespace tandem::testing
