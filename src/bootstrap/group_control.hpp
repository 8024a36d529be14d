#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tandem/base/config.hpp>
#include <tandem/bootstrap/store.hpp>
#include <vector>

#include "base/home_process.hpp"
#include "bootstrap/control.hpp"
#include "bootstrap/control_memory.hpp"

namespace tandem::bootstrap {

/// How long to spin before sleeping: about what a wake-up costs when every rank has a core, next to nothing
/// when ranks share cores (docs/design/waiting.md has the measurements). `configured` overrides.
[[nodiscard]] std::chrono::nanoseconds spin_duration(int num_ranks, int num_cores,
                                                     std::optional<std::chrono::microseconds> configured);

/// One rank's end of a group's control memory.
class GroupControl final : public Control {
 public:
  struct Options {
    int rank = 0;
    std::chrono::nanoseconds spin{0};
    std::chrono::milliseconds refuse_timeout{30'000};
    std::string name = "world";                  ///< of the group, for texts
    std::filesystem::path recorder_folder = {};  ///< for the flight record of an error; empty: none
    LogLevel log_level = LogLevel::kWarning;
  };

  GroupControl(std::shared_ptr<ControlMemory> memory, const Options& options);
  ~GroupControl() override;

  [[nodiscard]] int rank() const override { return options_.rank; }
  [[nodiscard]] int size() const override { return memory_->num_ranks(); }
  [[nodiscard]] Result<void> wait(const WaitInfo& info, Deadline deadline,
                                  FunctionRef<bool()> ready) override;
  [[nodiscard]] Result<void> wait(const WaitInfo& info, Deadline deadline, FunctionRef<bool()> ready,
                                  FunctionRef<void()> nap) override;
  void ring(int peer) override;
  [[nodiscard]] std::uint64_t next_sequence() override;
  [[nodiscard]] std::uint64_t begin_call(const Fingerprint& mine) override;
  void note_reached(std::uint64_t sequence, CallState state) override;
  void note_queued(std::uint64_t sequence, ExecutorKey stream) override;
  [[nodiscard]] Result<void> agree(std::uint64_t sequence, const Fingerprint& mine,
                                   Deadline deadline) override;
  [[nodiscard]] Result<void> announce(std::uint64_t sequence, const Fingerprint& mine,
                                      Deadline deadline) override;
  [[nodiscard]] Result<void> compare_announced() override;
  [[nodiscard]] Result<void> wait_agreed(std::uint64_t sequence, Deadline deadline) override;
  void note_enqueued() override;
  [[nodiscard]] Result<void> wait_enqueued(Deadline deadline) override;
  void refuse(std::uint64_t sequence, const Error& why) override;
  void report_timeout(const WaitInfo& info, std::chrono::nanoseconds waited) override;
  void report_peer_left(const WaitInfo& info) override;
  [[nodiscard]] const std::shared_ptr<ControlMemory>& memory() const override { return memory_; }
  [[nodiscard]] Result<void> check_process() const override;
  [[nodiscard]] Result<void> status() const override;
  void poison(const Error& error, int culprit) override;

  /// Every rank's bytes in rank order. Collective; one thread of a rank at a time.
  [[nodiscard]] Result<std::vector<Store::Bytes>> exchange(std::span<const std::byte> mine,
                                                           std::string_view what, Deadline deadline);
  [[nodiscard]] FlightRecord flight_record() const;
  /// Tells the others that this rank uses the group no more.
  void leave();
  /// For the monitor: the process of `rank` has ended. Nothing to report if it had left before.
  void report_death(int rank);

  // For WaitCircles.

  [[nodiscard]] const std::string& name() const { return options_.name; }
  [[nodiscard]] std::uint64_t nonce() const { return memory_->header().identity.nonce; }
  [[nodiscard]] RankArea& area(int rank) const { return memory_->rank(rank); }
  /// The host thread that used the group last, or made it.
  [[nodiscard]] ExecutorKey host() const { return host_.load(std::memory_order_relaxed); }
  /// The stream that the first call behind `posted` is queued on; 0 if none is, or it is not known.
  [[nodiscard]] ExecutorKey runner_of_next_call() const;
  [[nodiscard]] std::string describe_rank(int rank) const;
  /// What this rank waits for, for people.
  [[nodiscard]] std::string describe_wait(const WaitInfo& info) const;
  /// As poison(); whoever waited for one of the groups `circle` poisons those that it is in.
  void poison_circle(const Error& error, std::span<const std::uint64_t> circle);
  /// The groups of the circle that is the group's error, zeros behind them; empty if it is another error.
  [[nodiscard]] std::span<const std::uint64_t> circle() const;

 private:
  enum class Look { kReady, kPoisoned, kPeerLeft, kExpired, kInterrupted, kPending };
  struct Wait {
    const WaitInfo& info;
    Deadline deadline;
    FunctionRef<bool()> ready;
    const FunctionRef<bool(int)>* has_come = nullptr;  ///< of a wait for many ranks: who is there already
    const FunctionRef<void()>* nap = nullptr;          ///< instead of a sleep on the own doorbell
  };
  struct Culprit {
    int rank = -1;
    std::string why;
  };

  Result<void> wait_slowly(const Wait& wait);
  Look look(const Wait& wait) const;
  Look spin(const Wait& wait) const;
  Look sleep_and_look(const Wait& wait, std::chrono::nanoseconds longest) const;
  Look wait_and_look_for_circles(const Wait& wait);
  void report_timeout(const Wait& wait, std::chrono::nanoseconds waited);
  void report_interrupt(const WaitInfo& info);
  Result<void> give_up(const Wait& wait, Look look, Deadline::Clock::time_point started);
  /// Waits rank by rank until has_come(r) for all, or interrupted(). `info` but for its peer.
  Result<void> wait_for_ranks(WaitInfo info, Deadline deadline, FunctionRef<bool(int)> has_come,
                              FunctionRef<bool()> interrupted);
  void ring_everybody();

  /// Into the folder, if there is one.
  void save_flight_record() const;
  void write_error(const Error& error, int culprit, std::span<const std::uint64_t> circle);
  [[nodiscard]] int waiter_of(const WaitInfo& info) const;
  [[nodiscard]] Culprit find_culprit(const WaitInfo& info) const;
  [[nodiscard]] int waited_for_by(int rank) const;
  /// Of a rank that waits for nobody in this group: where its host waits, if it is in another group.
  [[nodiscard]] std::string describe_idle(int rank) const;
  [[nodiscard]] std::string describe_timeout(const Wait& wait, std::chrono::nanoseconds waited,
                                             const Culprit& culprit) const;
  /// " on channel 2", " on chunk 5".
  [[nodiscard]] static std::string describe_place(const WaitInfo& info);

  Result<void> post(std::uint64_t sequence, bool is_refusal, const Fingerprint& fingerprint,
                    Deadline deadline);
  enum class Verdict { kPending, kEqual, kDifferent };
  [[nodiscard]] Verdict compare(std::uint64_t sequence) const;
  void compare_pending();
  void finish_agreement(std::uint64_t sequence, const Fingerprint& fingerprint);
  [[nodiscard]] bool is_agreed(std::uint64_t sequence) const;
  Error disagreement(std::uint64_t sequence) const;

  Result<void> exchange_round(std::uint64_t round, Deadline deadline, std::string_view what);
  Result<void> check_same_exchange(std::string_view what);

  RankArea& own() const { return memory_->rank(options_.rank); }

  const std::shared_ptr<ControlMemory> memory_;
  const Options options_;
  const HomeProcess home_;
  std::atomic<std::uint64_t> next_sequence_;
  std::atomic<ExecutorKey> host_;
  struct Queued {
    std::uint64_t sequence = 0;
    ExecutorKey stream = 0;
  };
  /// More than a host may be ahead of its streams (Device::max_queued_ops()).
  static constexpr std::size_t kMostQueued = 2048;
  mutable std::mutex queued_mutex_;
  std::array<Queued, kMostQueued> queued_ = {};  ///< the last ones
  std::uint64_t exchange_round_ = 0;

  /// Announced calls that are not compared yet, oldest first: a ring. Never full: a call has a free slot
  /// before it gets in.
  std::mutex pending_mutex_;
  std::array<std::uint64_t, kNumAgreementSlots> pending_ = {};
  std::uint64_t first_pending_ = 0;
  std::atomic<std::uint64_t> num_pending_{0};  ///< changed under the mutex

  mutable std::mutex last_call_mutex_;  // for texts only
  std::uint64_t last_sequence_ = 0;
  Fingerprint last_call_;
};

}  // namespace tandem::bootstrap
