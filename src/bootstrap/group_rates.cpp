#include "bootstrap/group_rates.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <thread>

#include "base/format.hpp"
#include "base/try.hpp"
#include "base/usable_cores.hpp"
#include "bootstrap/group_impl.hpp"
#include "cost/gpu_fit.hpp"

namespace tandem::bootstrap {
namespace {

constexpr std::chrono::seconds kLongestTurn{1};
constexpr std::chrono::microseconds kNap{200};

RateBoard& board_of(Group& group) {
  return control_of(group).memory()->header().rates;
}

/// Whoever measures for the group; lets go of that when it ends.
class Turn {
 public:
  explicit Turn(RateBoard& board) : board_(board) {
    std::uint32_t nobody = 0;
    is_mine_ = board.is_measuring.compare_exchange_strong(nobody, 1, std::memory_order_acquire);
  }
  ~Turn() {
    if (is_mine_) board_.is_measuring.store(0, std::memory_order_release);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  [[nodiscard]] bool is_mine() const { return is_mine_; }

 private:
  RateBoard& board_;
  bool is_mine_ = false;
};

CoreRates read(const RateBoard& board) {
  CoreRates rates;
  for (std::size_t i = 0; i < kNumCoreRates; ++i) {
    const auto bits = board.per_us[i].load(std::memory_order_acquire);
    rates.set(static_cast<CoreRate>(i), std::bit_cast<double>(bits));
  }
  return rates;
}

/// What is known already stays.
void publish(RateBoard& board, const CoreRates& rates) {
  for (std::size_t i = 0; i < kNumCoreRates; ++i) {
    const auto rate = static_cast<CoreRate>(i);
    std::uint64_t unknown = 0;
    if (rates.knows(rate))
      board.per_us[i].compare_exchange_strong(unknown, std::bit_cast<std::uint64_t>(rates[rate]));
  }
}

bool knows_all(const CoreRates& rates, std::span<const CoreRate> needed) {
  return std::all_of(needed.begin(), needed.end(), [&](CoreRate rate) { return rates.knows(rate); });
}

}  // namespace

void give_rates(ControlMemory& memory, const CoreRates& rates) {
  memory.header().rates.given = rates;
  publish(memory.header().rates, rates);
}

int cores_of(Group& group) {
  const ControlMemory& memory = *control_of(group).memory();
  CoreSet all;
  for (int r = 0; r < group.size(); ++r) {
    const CoreSet& one = memory.rank(r).cores;
    for (std::size_t i = 0; i < all.words.size(); ++i) all.words[i] |= one.words[i];
  }
  const int cores = all.count() > 0 ? all.count() : usable_cores();
  return std::max(1, std::min(cores, memory.rank(0).granted_cores));
}

CoreRates known_rates(Group& group) {
  return read(board_of(group));
}

Result<CoreRates> agreed_rates(Group& group, std::span<const CoreRate> needed,
                               FunctionRef<Result<CoreRates>()> measure) {
  RateBoard& board = board_of(group);
  const auto end_of_patience = std::chrono::steady_clock::now() + kLongestTurn;
  while (true) {
    if (const CoreRates rates = read(board); knows_all(rates, needed)) return rates;
    const Turn turn(board);
    if (!turn.is_mine() && std::chrono::steady_clock::now() < end_of_patience) {
      std::this_thread::sleep_for(kNap);
      continue;
    }
    // Whoever had the turn before may have said all of it since.
    if (const CoreRates rates = read(board); knows_all(rates, needed)) return rates;
    TANDEM_ASSIGN(const CoreRates measured, measure());
    publish(board, measured);
    const CoreRates rates = read(board);
    if (!knows_all(rates, needed)) {
      return failf(ErrorCode::kInternal, "group '{}': measured '{}' of a core's speeds, and more are needed",
                   group.name(), to_string(measured));
    }
    return rates;
  }
}

const cost::GpuRates& gpu_rates_of(Group& group) {
  return group.impl().gpu_rates;
}

void set_gpu_times(Group& group, const cost::GpuTimes& times) {
  group.impl().gpu_times = times;
  group.impl().gpu_rates = cost::rates_of(times);
}

}  // namespace tandem::bootstrap
