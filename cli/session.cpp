#include "session.hpp"

#include <algorithm>
#include <cstring>

#include "failure.hpp"

namespace tandem::cli {
namespace {

constexpr std::int64_t kGuardBytes = 256;
constexpr unsigned char kGuardByte = 0xa5;

bool all_equal(const std::byte* bytes, std::int64_t count, unsigned char expected) {
  return std::all_of(bytes, bytes + count, [&](std::byte byte) { return byte == std::byte{expected}; });
}

}  // namespace

Session::Session(const RankContext& context, const Config& config, const std::string& name) {
  placement_ = receive_placement(context);
  device_ = take(open_device(placement_.device_of(context.rank), config));
  group_ = take(Group::create({.rank = context.rank,
                               .size = context.size,
                               .name = name,
                               .store = context.store,
                               .config = config,
                               .device = device_->description()}));
  stream_ = take(device_->create_stream());
}

Session::~Session() {
  static_cast<void>(stream_->synchronize());
}

void Session::meet(std::string_view what) const {
  take(group_->all_gather({}, what));
}

std::vector<double> Session::exchange(double mine, std::string_view what) const {
  const auto all = take(group_->all_gather(std::as_bytes(std::span(&mine, 1)), what));
  std::vector<double> values(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) std::memcpy(&values[i], all[i].data(), sizeof(double));
  return values;
}

void Session::finish() const {
  take(stream_->synchronize());
}

GuardedTensor::GuardedTensor(Device& device, const Dims& sizes, const Dims& strides, DType dtype)
    : device_(&device) {
  const std::int64_t num_bytes = numel(sizes) * tandem::size_bytes(dtype);
  buffer_ = take(device.allocate(num_bytes + 2 * kGuardBytes));
  if (!device.is_host_accessible()) {
    image_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(buffer_.size_bytes()));
  }
  std::memset(host_block(), kGuardByte, static_cast<std::size_t>(buffer_.size_bytes()));
  view_ = {static_cast<std::byte*>(buffer_.data()) + kGuardBytes, sizes, strides, dtype, device.id()};
  host_ = view_;
  if (image_) {
    host_.data = host_block() + kGuardBytes;
    host_.device = DeviceId{};
  }
  upload();
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

void GuardedTensor::poison() const {
  std::memset(host_.data, 0xff, static_cast<std::size_t>(host_.size_bytes()));
  upload();
}

bool GuardedTensor::guards_intact() const {
  if (device_ == nullptr) return true;
  const std::byte* begin = host_block();
  return all_equal(begin, kGuardBytes, kGuardByte) &&
         all_equal(begin + buffer_.size_bytes() - kGuardBytes, kGuardBytes, kGuardByte);
}

}  // namespace tandem::cli
