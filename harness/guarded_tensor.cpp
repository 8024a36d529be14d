#include "harness/guarded_tensor.hpp"

#include <algorithm>
#include <cstring>
#include <tandem/base/convert.hpp>

#include "harness/failure.hpp"

namespace tandem::harness {
namespace {

constexpr std::int64_t kGuardBytes = 256;
constexpr std::byte kGuard{0xa5};
constexpr int kPoison = 0xff;

// From the first element to the last, with holes.
std::int64_t num_bytes_of(const Layout& layout, DType dtype) {
  if (numel(layout.sizes) == 0) return 0;
  std::int64_t elements = 1;
  for (int d = 0; d < layout.sizes.size(); ++d) elements += (layout.sizes[d] - 1) * layout.strides[d];
  return elements * size_bytes(dtype);
}

bool are_guards(const std::byte* bytes) {
  return std::all_of(bytes, bytes + kGuardBytes, [](std::byte byte) { return byte == kGuard; });
}

}  // namespace

GuardedTensor::GuardedTensor(Device& device, const Layout& layout, DType dtype, HostImage image)
    : device_(&device) {
  buffer_ = take(device.allocate(num_bytes_of(layout, dtype) + 2 * kGuardBytes));
  if (image == HostImage::kAlways || !device.is_host_accessible()) {
    image_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(buffer_.size_bytes()));
  }
  view_ = {static_cast<std::byte*>(buffer_.data()) + kGuardBytes, layout.sizes, layout.strides, dtype,
           device.id()};
  host_ = view_;
  if (image_) {
    host_.data = host_block() + kGuardBytes;
    host_.device = DeviceId{};
  }
  poison();
}

std::byte* GuardedTensor::host_block() const {
  return image_ ? image_.get() : static_cast<std::byte*>(buffer_.data());
}

TensorView GuardedTensor::block() const {
  return TensorView::contiguous(buffer_.data(), {buffer_.size_bytes()}, DType::kU8, view_.device);
}

void GuardedTensor::download() const {
  if (image_) take(device_->copy_to_host(block(), image_.get()));
}

void GuardedTensor::upload() const {
  if (image_) take(device_->copy_from_host(image_.get(), block()));
}

void GuardedTensor::fill(const std::function<double(std::int64_t)>& value) const {
  std::vector<double> values(static_cast<std::size_t>(host_.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(static_cast<std::int64_t>(i));
  fill(TensorView::contiguous(values.data(), host_.sizes, DType::kF64));
}

void GuardedTensor::fill(const TensorView& values) const {
  take(convert(values, host_));
  upload();
}

void GuardedTensor::poison() const {
  const std::int64_t num_bytes = buffer_.size_bytes() - 2 * kGuardBytes;
  std::byte* begin = host_block();
  std::fill_n(begin, kGuardBytes, kGuard);
  std::memset(begin + kGuardBytes, kPoison, static_cast<std::size_t>(num_bytes));
  std::fill_n(begin + kGuardBytes + num_bytes, kGuardBytes, kGuard);
  upload();
}

double GuardedTensor::at(std::int64_t idx) const {
  return element_as_f64(host_, idx);
}

std::vector<std::byte> GuardedTensor::bytes() const {
  return {host_block(), host_block() + buffer_.size_bytes()};
}

bool GuardedTensor::holes_are_whole() const {
  const std::int64_t num_bytes = buffer_.size_bytes() - 2 * kGuardBytes;
  if (num_bytes == host_.size_bytes()) return true;
  const std::int64_t width = size_bytes(host_.dtype);
  std::vector<bool> is_element(static_cast<std::size_t>(num_bytes / width));
  for (std::int64_t element = 0; element < host_.numel(); ++element) {
    std::int64_t offset = 0;
    std::int64_t rest = element;
    for (int d = host_.dim() - 1; d >= 0; --d) {
      offset += rest % host_.size(d) * host_.stride(d);
      rest /= host_.size(d);
    }
    is_element[static_cast<std::size_t>(offset)] = true;
  }
  const std::byte* bytes = host_block() + kGuardBytes;
  for (std::int64_t i = 0; i < num_bytes; ++i) {
    if (!is_element[static_cast<std::size_t>(i / width)] && bytes[i] != std::byte{kPoison}) return false;
  }
  return true;
}

bool GuardedTensor::guards_are_whole() const {
  if (device_ == nullptr) return true;
  const std::byte* begin = host_block();
  return are_guards(begin) && are_guards(begin + buffer_.size_bytes() - kGuardBytes) && holes_are_whole();
}

}  // namespace tandem::harness
