#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/trace/events.hpp>
#include <tandem/trace/page.hpp>

namespace tandem {

/// When the steps of a group's ops run on this rank. Give one to Group::set_timeline(). Every step of a fused
/// op is then noted, and every collective. The streams take the times themselves, so nothing waits for them.
/// While a group has a timeline, its calls are not launched as graphs.
///
/// One host thread at a time uses it: the one that uses the group.
/// Source:  docs/design/timeline.md
class Timeline {
 public:
  static constexpr std::int32_t kMostEvents = 500'000;
  static constexpr std::int32_t kDefaultEvents = 1 << 17;

  /// Makes an empty one for ops on this device, with room for so many events. An event takes about 120 bytes.
  /// Errors:  kInvalidArgument for a number outside [1, kMostEvents]; kUnsupported on a device whose streams
  ///          cannot take times; kOutOfMemory.
  [[nodiscard]] static Result<std::shared_ptr<Timeline>> create(Device& device,
                                                                std::int32_t max_events = kDefaultEvents);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// What this rank's steps were since the last take(), and starts anew. Call Stream::synchronize() on the
  /// streams of the ops before. Steps that were skipped behind a fault are counted as dropped.
  [[nodiscard]] Result<trace::RankEvents> take(int rank);
  /// The same of all ranks. This is a collective call, and blocks the host.
  /// Errors:  as Group::all_gather().
  [[nodiscard]] Result<trace::Trace> gather(Group& group);

  class Impl;
  [[nodiscard]] Impl& impl() const { return *impl_; }

 private:
  explicit Timeline(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// This command, now and on this host.
[[nodiscard]] trace::Origin origin_here(std::string_view command);

/// Writes trace.json and trace.html into a folder, which is made if it is missing. Each file appears whole.
/// Errors:  kInvalidArgument, kDriver with the path.
[[nodiscard]] Result<void> save(const trace::Trace& trace, const trace::Summary& summary,
                                const trace::Origin& origin, const std::filesystem::path& folder);

}  // namespace tandem
