#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/executor.hpp"
#include "bootstrap/control.hpp"
#include "bootstrap/control_memory.hpp"

namespace tandem::bootstrap {

class GroupControl;

/// Finds circles of waits that go through more than one group: rank 0 waits in group A for rank 1, whose host
/// waits in group B for rank 0. One a process; knows the process's ends of all groups.
///
/// A thread that waits long in a group follows who waits for whom: to its peer, to who has to act there (the
/// host thread that used the group last, or the stream that the awaited call is queued on), to whom that
/// waits for. Each process follows its own part and publishes it in the control memories of its groups
/// (RankArea::host_blocked, call_blocked), for the peers that wait there. A thread that finds itself again
/// waits in a circle, and poisons the groups in it with one error.
///
/// Why that is no false alarm. A step carries the numbers of its waits, and the count of looks (`beat`) of
/// the process that wrote it. The finder counts a circle when it sees its own step come round a second time,
/// with a beat behind the first sight. Then every wait was seen before the first sight and once more after
/// it, under the same number: at the first sight all of them waited at once. What remains is a rank that
/// would have let another thread act; so a circle has to last a while, kPatience, and only the thread that
/// used a group last counts as the one that has to act.
class WaitCircles {
 public:
  static constexpr std::chrono::milliseconds kFirstLook{50};
  static constexpr std::chrono::milliseconds kBetweenLooks{20};
  static constexpr std::chrono::milliseconds kPatience{250};

  [[nodiscard]] static WaitCircles& of_process();

  void add(GroupControl& control);
  void remove(GroupControl& control);

  /// A wait of this thread in a group that has lasted for a while.
  class Watch {
   public:
    Watch(GroupControl& control, const WaitInfo& info);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    /// Publishes what this process knows. Poisons the groups of a circle that this wait is in.
    void look();

   private:
    friend class WaitCircles;
    using Clock = std::chrono::steady_clock;
    GroupControl& control_;
    const WaitInfo info_;
    const ExecutorKey executor_;
    const std::uint64_t number_;
    const std::string text_;
    // The circle that it seems to be in.
    std::vector<std::uint64_t> circle_;
    Clock::time_point first_seen_;
    std::uint64_t first_beat_ = 0;
  };

  /// The group's error may be a circle of waits: then it is that of this process's other groups in the
  /// circle.
  void pass_on(const GroupControl& control);

  /// Where the rank's host waits, for people; empty if it does not wait in any group.
  [[nodiscard]] static std::string first_wait_of(const RankArea& area);

 private:
  static constexpr std::size_t kTextBytes = 352;
  /// One wait in a group.
  struct Step {
    std::uint64_t wait = 0;   ///< its number, different in every process
    std::uint64_t via = 0;    ///< of the waits inside the process that lead to it
    std::uint64_t beat = 0;   ///< of the process, when it wrote this
    std::uint64_t group = 0;  ///< the nonce
    char text[kTextBytes] = {};
  };
  using Path = std::vector<Step>;
  static constexpr std::size_t kMostSteps = 8;
  static_assert(kMostSteps * sizeof(Step) / 8 + 1 <= BlockedRecord::kNumWords);

  void publish_all();
  [[nodiscard]] Path path_of(ExecutorKey executor, std::uint64_t via) const;
  [[nodiscard]] Path path_of(const Watch& watch, std::uint64_t via) const;
  [[nodiscard]] Path path_behind(const Watch& watch, std::uint64_t via) const;
  void check(Watch& watch) const;
  void report(const Path& path, std::size_t num_steps) const;
  static void write(BlockedRecord& record, const Path& path);
  [[nodiscard]] static Path read(const BlockedRecord& record);

  std::mutex mutex_;
  std::vector<GroupControl*> controls_;
  std::vector<Watch*> watches_;
  std::uint64_t beat_ = 0;
};

}  // namespace tandem::bootstrap
