#include "session.hpp"

#include <cstring>
#include <tandem/fused/measure_gpus.hpp>

#include "failure.hpp"

namespace tandem::cli {

Session::Session(const RankContext& context, const Config& config, const std::string& name)
    : context_(context) {
  placement_ = receive_placement(context);
  device_ = take(open_device(placement_.device_of(context.local_rank), config));
  group_ = take(Group::create({.rank = context.rank,
                               .size = context.size,
                               .name = name,
                               .store = context.store,
                               .config = config,
                               .device = device_->description(),
                               .transport = context.transport}));
  take(fused::measure_gpus(*group_, *device_));
  stream_ = take(device_->create_stream());
  timeline_ = asked_timeline(context, *device_);
  group_->set_timeline(timeline_);
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

void Session::tell_trace() const {
  if (timeline_ == nullptr) return;
  finish();
  tell(*timeline_, *group_, context_);
}

}  // namespace tandem::cli
