#include "session.hpp"

#include <fmt/format.h>

#include <cstring>
#include <tandem/fused/measure_gpus.hpp>
#include <tandem/transport/nccl.hpp>

#include "failure.hpp"

namespace tandem::cli {
namespace {

/// What carries rows to ranks on other hosts; null where all are on this one. On GPUs that is NCCL, which
/// needs them to be there. Ranks are on several hosts also where TANDEM_HOST says so.
std::shared_ptr<Transport> open_transport(const RankContext& context, const Config& config, Device& device) {
  const bool is_on_several = context.transport != nullptr || !config.host.empty();
  if (!is_on_several || device.id().kind == DeviceKind::kCpu) return context.transport;
  return take(open_nccl(context.rank, context.size, *context.store, device));
}

}  // namespace

Session::Session(const RankContext& context, const Config& config, const std::string& name)
    : context_(context) {
  placement_ = receive_placement(context);
  device_ = take(open_device(placement_.device_of(context.local_rank), config));
  transport_ = open_transport(context, config, *device_);
  group_ = take(Group::create({.rank = context.rank,
                               .size = context.size,
                               .name = name,
                               .store = context.store,
                               .config = config,
                               .device = device_->description(),
                               .transport = transport_}));
  take(fused::measure_gpus(*group_, *device_));
  stream_ = take(device_->create_stream());
  timeline_ = asked_timeline(context, *device_);
  group_->set_timeline(timeline_);
}

Session::~Session() {
  static_cast<void>(stream_->synchronize());
}

std::string Session::link_in_words() const {
  if (group_->num_hosts() == 1) return placement_.link_in_words();
  return fmt::format("{} hosts: {} carries rows between them", group_->num_hosts(), transport());
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
