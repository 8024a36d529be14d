#include "bootstrap/wait_circles.hpp"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/format.hpp"
#include "base/hash.hpp"
#include "base/home_process.hpp"
#include "bootstrap/group_control.hpp"

namespace tandem::bootstrap {
namespace {

using Actor = WaitInfo::Actor;

/// Different in every process, for all that is to be expected.
std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{std::uint64_t{std::random_device{}()} << 32};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
  return Hash().add(hash).add(word).value();
}

}  // namespace

WaitCircles& WaitCircles::of_process() {
  static OnePerProcess<WaitCircles> circles;
  return circles.get();
}

void WaitCircles::add(GroupControl& control) {
  const std::lock_guard lock(mutex_);
  controls_.push_back(&control);
}

void WaitCircles::remove(GroupControl& control) {
  const std::lock_guard lock(mutex_);
  std::erase(controls_, &control);
}

WaitCircles::Watch::Watch(GroupControl& control, const WaitInfo& info)
    : control_(control),
      info_(info),
      executor_(this_executor()),
      number_(next_number()),
      text_(control.describe_wait(info)) {
  WaitCircles& circles = of_process();
  const std::lock_guard lock(circles.mutex_);
  circles.watches_.push_back(this);
}

WaitCircles::Watch::~Watch() {
  WaitCircles& circles = of_process();
  const std::lock_guard lock(circles.mutex_);
  std::erase(circles.watches_, this);
  circles.publish_all();
}

void WaitCircles::Watch::look() {
  WaitCircles& circles = of_process();
  const std::lock_guard lock(circles.mutex_);
  circles.publish_all();
  circles.check(*this);
}

void WaitCircles::publish_all() {
  ++beat_;
  for (const GroupControl* control : controls_) {
    RankArea& own = control->area(control->rank());
    write(own.host_blocked, path_of(control->host(), 0));
    const ExecutorKey runner = control->runner_of_next_call();
    write(own.call_blocked, runner == 0 ? Path() : path_of(runner, 0));
  }
}

// Inside the process an executor may wait for another one, as a host does that synchronizes a stream.
WaitCircles::Path WaitCircles::path_of(ExecutorKey executor, std::uint64_t via) const {
  constexpr int kMostHops = 16;
  for (int hop = 0; hop < kMostHops; ++hop) {
    via = mixed(via, executor);
    const auto watch = std::find_if(watches_.begin(), watches_.end(),
                                    [&](const Watch* each) { return each->executor_ == executor; });
    if (watch != watches_.end()) return path_of(**watch, via);
    const auto wait = wait_of(executor);
    if (!wait) return {};
    via = mixed(via, wait->number);
    executor = wait->awaited;
  }
  return {};
}

WaitCircles::Path WaitCircles::path_of(const Watch& watch, std::uint64_t via) const {
  Path path;
  Step& first = path.emplace_back();
  first.wait = watch.number_;
  first.via = via;
  first.beat = beat_;
  first.group = watch.control_.nonce();
  std::memcpy(first.text, watch.text_.data(), std::min(watch.text_.size(), kTextBytes - 1));
  for (const Step& step : path_behind(watch, via)) {
    const auto is_same = [&](const Step& each) { return each.wait == step.wait; };
    const bool comes_round = std::any_of(path.begin(), path.end(), is_same);
    if (path.size() < kMostSteps) path.push_back(step);
    if (comes_round) break;
  }
  return path;
}

WaitCircles::Path WaitCircles::path_behind(const Watch& watch, std::uint64_t via) const {
  const GroupControl& control = watch.control_;
  if (watch.info_.actor == Actor::kOwnCall) {
    const ExecutorKey runner = control.runner_of_next_call();
    // A stream's own watch of this kind would lead to itself.
    return runner == 0 || runner == watch.executor_ ? Path() : path_of(runner, via);
  }
  if (watch.info_.peer < 0) return {};
  const RankArea& peer = control.area(watch.info_.peer);
  if (watch.info_.actor == Actor::kHost) return read(peer.host_blocked);
  const auto is_behind = [&](const std::atomic<std::uint64_t>& word) {
    return static_cast<std::int64_t>(word.load(std::memory_order_acquire) - watch.info_.sequence) < 0;
  };
  if (is_behind(peer.issued)) return read(peer.host_blocked);
  return is_behind(peer.posted) ? read(peer.call_blocked) : Path();
}

void WaitCircles::check(Watch& watch) const {
  const Path path = path_of(watch, 0);
  std::size_t end = 1;  // where this wait comes again
  while (end < path.size() && path[end].wait != watch.number_) ++end;
  std::vector<std::uint64_t> circle;
  if (end < path.size()) {
    for (std::size_t i = 1; i <= end; ++i) circle.insert(circle.end(), {path[i].wait, path[i].via});
  }
  const auto now = Watch::Clock::now();
  if (circle.empty() || circle != watch.circle_) {
    watch.circle_ = std::move(circle);
    watch.first_seen_ = now;
    watch.first_beat_ = beat_ + 1;
    return;
  }
  if (now - watch.first_seen_ < kPatience || path[end].beat < watch.first_beat_) return;
  report(path, end);
}

void WaitCircles::report(const Path& path, std::size_t num_steps) const {
  std::string text = "a circle of waits:";
  std::vector<std::uint64_t> groups;
  for (std::size_t i = 0; i < num_steps; ++i) {
    text += fmt::format("{} {}", i == 0 ? "" : ";", path[i].text);
    groups.push_back(path[i].group);
  }
  text +=
      ". Use these groups in the same order on all ranks, or use one host thread and one stream for each "
      "group";
  const Error error(ErrorCode::kMismatch, std::move(text));
  for (GroupControl* control : controls_) {
    if (std::count(groups.begin(), groups.end(), control->nonce()) > 0) control->poison_circle(error, groups);
  }
}

void WaitCircles::pass_on(const GroupControl& control) {
  const auto circle = control.circle();
  if (circle.empty()) return;
  const auto status = control.status();
  const std::lock_guard lock(mutex_);
  for (GroupControl* other : controls_) {
    const bool is_in = other->nonce() != 0 && std::count(circle.begin(), circle.end(), other->nonce()) > 0;
    if (is_in && other->status()) other->poison_circle(status.error(), circle);
  }
}

std::string WaitCircles::first_wait_of(const RankArea& area) {
  const Path path = read(area.host_blocked);
  return path.empty() ? "" : path.front().text;
}

// One writer at a time, which holds the mutex. A reader that meets a change reads nothing.
void WaitCircles::write(BlockedRecord& record, const Path& path) {
  if (path.empty() && record.words[0].load(std::memory_order_relaxed) == 0) return;
  const std::uint64_t version = record.version.load(std::memory_order_relaxed);
  record.version.exchange(version + 1, std::memory_order_acq_rel);
  record.words[0].store(path.size(), std::memory_order_release);
  std::size_t at = 1;
  for (const Step& step : path) {
    std::uint64_t words[sizeof(Step) / 8];
    std::memcpy(words, &step, sizeof(step));
    for (const std::uint64_t word : words) record.words[at++].store(word, std::memory_order_release);
  }
  record.version.store(version + 2, std::memory_order_release);
}

WaitCircles::Path WaitCircles::read(const BlockedRecord& record) {
  const std::uint64_t version = record.version.load(std::memory_order_acquire);
  const std::uint64_t num_steps = record.words[0].load(std::memory_order_acquire);
  if (version % 2 != 0 || num_steps > kMostSteps) return {};
  Path path(num_steps);
  std::size_t at = 1;
  for (Step& step : path) {
    std::uint64_t words[sizeof(Step) / 8];
    for (std::uint64_t& word : words) word = record.words[at++].load(std::memory_order_acquire);
    std::memcpy(&step, words, sizeof(step));
    step.text[kTextBytes - 1] = '\0';
  }
  // The words' loads acquire: this one comes behind them, and a change between shows.
  return record.version.load(std::memory_order_relaxed) == version ? path : Path();
}

}  // namespace tandem::bootstrap
