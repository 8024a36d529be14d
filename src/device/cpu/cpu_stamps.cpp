#include "device/cpu/cpu_stamps.hpp"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <tandem/cpu/launch.hpp>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::cpu {
namespace {

constexpr std::string_view kClock = "CLOCK_MONOTONIC";

class CpuStamps final : public Stamps {
 public:
  static Result<std::unique_ptr<Stamps>> create(Device& device, std::int32_t capacity) {
    if (capacity < 1)
      return failf(ErrorCode::kInvalidArgument, "stamps: capacity {}, need at least 1", capacity);
    const auto count = static_cast<std::size_t>(capacity);
    // Memory of the device, which stays while queued tasks use it.
    TANDEM_ASSIGN(Buffer times, device.allocate(capacity * std::int64_t{sizeof(std::int64_t)}));
    TANDEM_ASSIGN(Buffer waits, device.allocate(std::int64_t{alignof(ChunkWait)} +
                                                capacity * std::int64_t{sizeof(ChunkWait)}));
    std::unique_ptr<CpuStamps> stamps(new CpuStamps(std::move(times), std::move(waits), count));
    stamps->start_anew();
    return stamps;
  }

  Result<void> take(Stream& stream, std::int32_t at) override {
    if (at < 0 || static_cast<std::size_t>(at) >= capacity_)
      return failf(ErrorCode::kInvalidArgument, "stamps: number {} outside [0, {})", at, capacity_);
    used_ = std::max(used_, static_cast<std::size_t>(at) + 1);
    return launch(stream, Task([time = &times()[static_cast<std::size_t>(at)]]() -> Result<void> {
                    *time = host_now_ns();
                    return {};
                  }));
  }

  ChunkWaitLog chunk_waits(std::int32_t tag) override {
    return {
        .waits = waits(), .count = count(), .capacity = static_cast<std::uint32_t>(capacity_), .tag = tag};
  }

  Result<StampedTimes> read() override {
    const std::uint32_t noted = std::atomic_ref(*count()).load(std::memory_order_acquire);
    const std::size_t kept = std::min<std::size_t>(noted, capacity_);
    StampedTimes read{.at = {times().begin(), times().begin() + static_cast<std::ptrdiff_t>(used_)},
                      .chunk_waits = {waits(), waits() + kept},
                      .num_lost_chunk_waits = static_cast<std::int64_t>(noted - kept)};
    start_anew();
    return read;
  }

  std::int64_t uncertainty_ns() const override {
    timespec resolution;
    clock_getres(CLOCK_MONOTONIC, &resolution);
    return resolution.tv_nsec;
  }
  std::string_view clock() const override { return kClock; }

 private:
  CpuStamps(Buffer times, Buffer waits, std::size_t capacity)
      : times_(std::move(times)), waits_(std::move(waits)), capacity_(capacity), used_(capacity) {}

  [[nodiscard]] std::span<std::int64_t> times() const {
    return {static_cast<std::int64_t*>(times_.data()), capacity_};
  }
  // The count lies before the waits.
  [[nodiscard]] std::uint32_t* count() const { return static_cast<std::uint32_t*>(waits_.data()); }
  [[nodiscard]] ChunkWait* waits() const {
    return reinterpret_cast<ChunkWait*>(static_cast<std::byte*>(waits_.data()) + alignof(ChunkWait));
  }
  void start_anew() {
    std::fill_n(times().begin(), used_, StampedTimes::kNever);
    used_ = 0;
    std::atomic_ref(*count()).store(0, std::memory_order_release);
  }

  Buffer times_;
  Buffer waits_;
  std::size_t capacity_;
  std::size_t used_;  // all numbers from here on are untouched
};

class CpuStampService final : public StampService {
 public:
  Result<std::unique_ptr<Stamps>> create(Device& device, std::int32_t capacity) override {
    return CpuStamps::create(device, capacity);
  }
};

}  // namespace

std::shared_ptr<StampService> make_stamp_service() {
  return std::make_shared<CpuStampService>();
}

void note_wait(const ChunkWaitLog& log, int chunk, std::int64_t begin_ns) {
  const std::uint32_t at = std::atomic_ref(*log.count).fetch_add(1, std::memory_order_relaxed);
  if (at < log.capacity)
    log.waits[at] = {.begin = begin_ns, .end = host_now_ns(), .chunk = chunk, .tag = log.tag};
}

}  // namespace tandem::cpu
