#pragma once

#include <chrono>
#include <memory>
#include <tandem/backend/backend.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/bootstrap/launcher.hpp>
#include <tandem/device/device.hpp>

namespace tandem::cli {

/// What a rank needs to run ops: its device, the group of all ranks, and a stream.
class Session {
 public:
  /// `name` is the same on every rank; two sessions of a job may exist one after the other.
  Session(const RankContext& context, const Config& config, const std::string& name);

  [[nodiscard]] int rank() const { return group_->rank(); }
  [[nodiscard]] int size() const { return group_->size(); }
  [[nodiscard]] Device& device() const { return *device_; }
  [[nodiscard]] Group& group() const { return *group_; }
  [[nodiscard]] Stream& stream() const { return *stream_; }

  /// Blocks until every rank is here.
  void meet(std::string_view what) const;
  /// Every rank's number, in rank order.
  [[nodiscard]] std::vector<double> exchange(double mine, std::string_view what) const;
  /// Blocks until the stream's work is done.
  void finish() const;

 private:
  // In this order: the stream ends first, then the group lets go of memory of the device.
  std::unique_ptr<Device> device_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<Stream> stream_;
};

/// Tensor in the memory of a device, between two canaries. The tool reads it by pointer, as CPU devices
/// allow.
class GuardedTensor {
 public:
  GuardedTensor() = default;
  /// `strides` cover numel(sizes) elements without holes, in any order.
  GuardedTensor(Device& device, const Dims& sizes, const Dims& strides, DType dtype);
  GuardedTensor(Device& device, const Dims& sizes, DType dtype)
      : GuardedTensor(device, sizes, contiguous_strides(sizes), dtype) {}

  [[nodiscard]] const TensorView& view() const { return view_; }
  /// Sets every byte so that an element that is never written is seen (a NaN in every float type).
  void poison() const;
  /// Whether nobody wrote beside the tensor.
  [[nodiscard]] bool guards_intact() const;
  [[nodiscard]] bool same_bytes(const GuardedTensor& other) const;

 private:
  Buffer buffer_;
  TensorView view_;
};

}  // namespace tandem::cli
