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
  device_ = take(open_device({DeviceKind::kCpu, 0}, config));
  group_ = take(Group::create({context.rank, context.size, name, context.store, config}));
  stream_ = take(device_->create_stream());
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

GuardedTensor::GuardedTensor(Device& device, const Dims& sizes, const Dims& strides, DType dtype) {
  const std::int64_t num_bytes = numel(sizes) * tandem::size_bytes(dtype);
  buffer_ = take(device.allocate(num_bytes + 2 * kGuardBytes));
  if (!device.is_host_accessible()) not_supported("the tool needs a device whose memory the host can read");
  std::memset(buffer_.data(), kGuardByte, static_cast<std::size_t>(num_bytes + 2 * kGuardBytes));
  view_ = {static_cast<std::byte*>(buffer_.data()) + kGuardBytes, sizes, strides, dtype, device.id()};
}

void GuardedTensor::poison() const {
  std::memset(view_.data, 0xff, static_cast<std::size_t>(view_.size_bytes()));
}

bool GuardedTensor::guards_intact() const {
  const auto* begin = static_cast<const std::byte*>(buffer_.data());
  return all_equal(begin, kGuardBytes, kGuardByte) &&
         all_equal(begin + kGuardBytes + view_.size_bytes(), kGuardBytes, kGuardByte);
}

bool GuardedTensor::same_bytes(const GuardedTensor& other) const {
  return std::memcmp(view_.data, other.view_.data, static_cast<std::size_t>(view_.size_bytes())) == 0;
}

}  // namespace tandem::cli
