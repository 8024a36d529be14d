#include <tandem/bootstrap/group.hpp>

#include <algorithm>

#include "base/format.hpp"
#include "base/home_process.hpp"
#include "base/try.hpp"
#include "bootstrap/group_impl.hpp"

namespace tandem {
namespace {

Result<void> check(const GroupOptions& options) {
  constexpr int kLargestSize = 4096;
  constexpr std::size_t kLongestName = 512;
  if (options.size < 1 || options.size > kLargestSize) {
    return failf(ErrorCode::kInvalidArgument, "group '{}': size {}, need 1 to {}", options.name, options.size,
                 kLargestSize);
  }
  if (options.rank < 0 || options.rank >= options.size) {
    return failf(ErrorCode::kInvalidArgument, "group '{}': rank {}, need 0 to {}", options.name, options.rank,
                 options.size - 1);
  }
  if (options.name.empty() || options.name.size() > kLongestName) {
    return failf(ErrorCode::kInvalidArgument, "group: a name of {} characters, need 1 to {}",
                 options.name.size(), kLongestName);
  }
  if (!options.store) return failf(ErrorCode::kInvalidArgument, "group '{}': no store", options.name);
  if (options.config.rendezvous_timeout.count() <= 0 || options.config.op_timeout.count() <= 0) {
    return failf(ErrorCode::kInvalidArgument,
                 "group '{}': rendezvous timeout {} ms, op timeout {} ms, need both > 0", options.name,
                 options.config.rendezvous_timeout.count(), options.config.op_timeout.count());
  }
  if (options.config.max_plans < 1) {
    return failf(ErrorCode::kInvalidArgument, "group '{}': max_plans {}, need at least 1", options.name,
                 options.config.max_plans);
  }
  return {};
}

/// Those who make a group do not know its name, but who asked for one of several wants to read it.
Error with_name(const Error& error, const std::string& name) {
  constexpr std::string_view kGroup = "group: ";
  if (!error.text().starts_with(kGroup)) return error;
  return Error(error.code(), fmt::format("group '{}': {}", name, error.text().substr(kGroup.size())),
               error.native_code());
}

}  // namespace

Group::Group(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Group::~Group() {
  if (!impl_->home.is_here()) keep_forever(std::move(impl_));  // the group is the parent's, and goes on there
}

Result<std::unique_ptr<Group>> Group::create(const GroupOptions& options) {
  TANDEM_TRY(check(options));
  if (options.transport != nullptr) return create_across_hosts(options);
  auto impl = Impl::create(options);
  if (!impl) return tl::unexpected<Error>(with_name(impl.error(), options.name));
  return std::unique_ptr<Group>(new Group(*std::move(impl)));
}

/// The ranks of a host form a group of their own, which shares memory; the group around it adds what crosses.
Result<std::unique_ptr<Group>> Group::create_across_hosts(const GroupOptions& options) {
  const auto deadline = Deadline::after(options.config.rendezvous_timeout);
  TANDEM_ASSIGN(const bootstrap::HostPlace place, bootstrap::find_hosts(*options.store, options, deadline));
  GroupOptions here = options;
  here.transport = nullptr;
  if (place.num_hosts == 1) return create(here);
  if (options.transport->rank() != options.rank || options.transport->size() != options.size) {
    return failf(
        ErrorCode::kInvalidArgument,
        "group '{}': rank {} of {}, and its transport has rank {} of {}; a group on several hosts has "
        "all ranks of its transport",
        options.name, options.rank, options.size, options.transport->rank(), options.transport->size());
  }
  here.name = fmt::format("{}, host {}", options.name, place.host);
  here.rank = options.rank - place.first_rank();
  here.size = place.ranks_per_host;
  // A rank that waits for another host knows whom to name; those of its host, who wait for it, do not.
  constexpr std::chrono::milliseconds kToBeTold(1000);
  here.config.op_timeout += kToBeTold;
  TANDEM_ASSIGN(std::unique_ptr<Group> within, create(here));
  TANDEM_ASSIGN(auto impl, Impl::create_across(options, place, std::move(within)));
  return std::unique_ptr<Group>(new Group(std::move(impl)));
}

int Group::num_hosts() const {
  return impl_->within_host ? impl_->link->place.num_hosts : 1;
}
int Group::host() const {
  return impl_->within_host ? impl_->link->place.host : 0;
}
Group& Group::within_host() {
  return bootstrap::within_host(*this);
}
int Group::rank() const {
  return impl_->options.rank;
}
int Group::size() const {
  return impl_->options.size;
}
const std::string& Group::name() const {
  return impl_->options.name;
}
const Config& Group::config() const {
  return impl_->options.config;
}
const FaultPlan& Group::faults() const {
  return impl_->faults;
}
bool Group::nan_check() const {
  return impl_->options.config.nan_check;
}
void Group::set_nan_check(bool is_on) {
  impl_->options.config.nan_check = is_on;
  if (impl_->within_host) impl_->within_host->set_nan_check(is_on);
}
const cost::GpuTimes& Group::gpu_times() const {
  return impl_->gpu_times;
}

const cost::Table& Group::tune_table() const {
  return impl_->tune_table;
}
Store& Group::store() const {
  return *impl_->store;
}

Result<std::unique_ptr<Group>> Group::subgroup(std::span<const int> ranks, std::string_view name) {
  TANDEM_TRY(bootstrap::check_one_host(*this, "subgroup"));
  GroupOptions options = impl_->options;
  options.size = static_cast<int>(ranks.size());
  options.rank = -1;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= size()) {
      return failf(ErrorCode::kInvalidArgument, "subgroup '{}': rank {}, need 0 to {}", name, ranks[i],
                   size() - 1);
    }
    if (std::count(ranks.begin(), ranks.end(), ranks[i]) > 1) {
      return failf(ErrorCode::kInvalidArgument, "subgroup '{}': rank {} is named twice", name, ranks[i]);
    }
    if (ranks[i] == rank()) options.rank = static_cast<int>(i);
  }
  if (options.rank < 0) {
    return failf(ErrorCode::kInvalidArgument, "subgroup '{}': rank {} is not among its ranks {}", name,
                 rank(), ranks);
  }
  TANDEM_TRY(status());
  // Disjoint subgroups may carry one name: the members are part of the full one.
  options.name = fmt::format("{}/{}[{}]", impl_->options.name, name, fmt::join(ranks, ","));
  TANDEM_TRY(check(options));
  auto impl = Impl::create(options, impl_.get(), ranks);
  if (!impl) return tl::unexpected<Error>(with_name(impl.error(), options.name));
  return std::unique_ptr<Group>(new Group(*std::move(impl)));
}

Result<void> Group::status() const {
  return impl_->within_host ? impl_->within_host->status() : impl_->control->status();
}

void Group::poison(const Error& error, int culprit) {
  if (!impl_->within_host) return impl_->control->poison(error, culprit);
  // Texts name ranks of the whole group; a culprit is one of the host's.
  const int first = impl_->link->place.first_rank();
  const bool is_here = culprit >= first && culprit < first + impl_->within_host->size();
  impl_->within_host->poison(error, is_here ? culprit - first : -1);
}

void Group::refuse_call(const Error& why) {
  if (impl_->within_host) return impl_->within_host->refuse_call(why);
  if (!impl_->control->check_process()) return;
  impl_->control->refuse(impl_->control->next_sequence(), why);
}

Result<std::vector<Store::Bytes>> Group::all_gather(std::span<const std::byte> mine, std::string_view what) {
  const auto deadline = Deadline::after(impl_->options.config.rendezvous_timeout);
  if (!impl_->within_host) return impl_->control->exchange(mine, what, deadline);
  TANDEM_TRY(status());
  auto all = impl_->exchange->all_gather(mine, what, deadline);
  if (!all) poison(all.error(), -1);
  return all;
}

std::shared_ptr<void>& Group::extension_slot(std::type_index type, std::string_view name) {
  auto& extensions = impl_->extensions;
  for (Impl::Extension& known : extensions) {
    if (known.type == type && known.name == name) return known.object;
  }
  extensions.push_back({type, std::string(name), nullptr});
  return extensions.back().object;
}

void Group::set_timeline(std::shared_ptr<Timeline> timeline) {
  if (impl_->within_host) impl_->within_host->set_timeline(timeline);
  impl_->timeline = std::move(timeline);
}

Timeline* Group::timeline() const {
  return impl_->timeline.get();
}

void Group::before_end(std::function<void()> step) {
  impl_->before_end.push_back(std::move(step));
}

bootstrap::Control& bootstrap::control_of(Group& group) {
  return *within_host(group).impl().control;
}

}  // namespace tandem
