#include "device/cuda/cuda_stamps.hpp"

#include <algorithm>
#include <cmath>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "device/cuda/gpu_clock.hpp"

namespace tandem::cuda {
namespace {

constexpr std::string_view kClock = "CUDA events and %globaltimer, aligned to CLOCK_MONOTONIC";

/// Readings before and behind all that was stamped: the host's clock is taken to drift evenly between them.
class Alignment {
 public:
  Alignment(const ClockReading& begin, const ClockReading& end)
      : begin_(begin),
        end_(end),
        drift_(end.timer_ns == begin.timer_ns
                   ? 0.0
                   : static_cast<double>(end.host_ns - begin.host_ns - (end.timer_ns - begin.timer_ns)) /
                         static_cast<double>(end.timer_ns - begin.timer_ns)) {}

  [[nodiscard]] std::int64_t host_ns(std::int64_t timer_ns) const {
    const std::int64_t since_ns = timer_ns - begin_.timer_ns;
    return begin_.host_ns + since_ns + std::llround(drift_ * static_cast<double>(since_ns));
  }
  /// Of an event that has been passed between the readings: from the nearer one, since the driver rounds long
  /// times more coarsely.
  [[nodiscard]] Result<std::int64_t> host_ns(const TimedEvent& event) const {
    TANDEM_ASSIGN(const std::int64_t since_ns, elapsed_ns(begin_.event, event));
    if (2 * since_ns < end_.event_ns - begin_.event_ns) return host_ns(begin_.event_ns + since_ns);
    TANDEM_ASSIGN(const std::int64_t until_ns, elapsed_ns(event, end_.event));
    return host_ns(end_.event_ns - until_ns);
  }

 private:
  const ClockReading& begin_;
  const ClockReading& end_;
  const double drift_;
};

class CudaStamps final : public Stamps {
 public:
  static Result<std::unique_ptr<Stamps>> create(Device& device, std::int32_t capacity) {
    if (capacity < 1)
      return failf(ErrorCode::kInvalidArgument, "stamps: capacity {}, need at least 1", capacity);
    std::unique_ptr<CudaStamps> stamps(new CudaStamps(device, capacity));
    TANDEM_ASSIGN(stamps->waits_,
                  device.allocate_tensor({stamps->num_waits_, std::int64_t{sizeof(ChunkWait)}}, DType::kU8));
    TANDEM_ASSIGN(stamps->count_, device.allocate_tensor({1}, DType::kU32));
    TANDEM_ASSIGN(stamps->begin_, stamps->read_clocks());
    return stamps;
  }

  Result<void> take(Stream& stream, std::int32_t at) override {
    if (at < 0 || static_cast<std::size_t>(at) >= events_.size())
      return failf(ErrorCode::kInvalidArgument, "stamps: number {} outside [0, {})", at, events_.size());
    TANDEM_ASSIGN(CudaStream* const on, cuda_stream(stream, "stamps"));
    if (on->device_idx() != device_.id().index) {
      return failf(ErrorCode::kInvalidArgument, "stamps: a stream of cuda:{}, need one of {}",
                   on->device_idx(), to_string(device_.id()));
    }
    if (on->is_capturing())
      return fail(ErrorCode::kUnsupported, "stamps: the stream records a graph, whose replays have no times");
    const auto place = static_cast<std::size_t>(at);
    const CurrentDevice current(on->device_idx());
    if (!events_[place]) {
      TANDEM_ASSIGN(events_[place], TimedEvent::make());
    }
    TANDEM_TRY(on->enqueue("stamps", Waits::kForNobody, [&](cudaStream_t native) {
      return cudaEventRecord(events_[place].native(), native);
    }));
    is_taken_[place] = true;
    used_ = std::max(used_, place + 1);
    return {};
  }

  ChunkWaitLog chunk_waits(std::int32_t tag) override {
    return {.waits = waits_.view().data_as<ChunkWait>(),
            .count = count_.view().data_as<std::uint32_t>(),
            .capacity = static_cast<std::uint32_t>(num_waits_),
            .tag = tag};
  }

  Result<StampedTimes> read() override {
    const CurrentDevice current(device_.id().index);
    TANDEM_ASSIGN(ClockReading end, read_clocks());
    const Alignment alignment(begin_, end);
    StampedTimes read;
    read.at.assign(used_, StampedTimes::kNever);
    for (std::size_t i = 0; i < used_; ++i) {
      if (!is_taken_[i]) continue;
      TANDEM_ASSIGN(read.at[i], alignment.host_ns(events_[i]));
    }
    TANDEM_TRY(read_waits(alignment, read));
    note_uncertainty(end);
    std::fill_n(is_taken_.begin(), used_, false);
    used_ = 0;
    begin_ = std::move(end);
    return read;
  }

  std::int64_t uncertainty_ns() const override { return uncertainty_ns_; }
  std::string_view clock() const override { return kClock; }

 private:
  // Every CTA of a product may wait for a chunk.
  static constexpr std::int64_t kWaitsOfNumber = 2;

  CudaStamps(Device& device, std::int32_t capacity)
      : device_(device),
        num_waits_(kWaitsOfNumber * capacity),
        events_(static_cast<std::size_t>(capacity)),
        is_taken_(static_cast<std::size_t>(capacity)) {}

  Result<ClockReading> read_clocks() {
    TANDEM_ASSIGN(auto reading,
                  cuda::read_clocks(device_.id().index, Deadline::after(device_.config().op_timeout)));
    note_uncertainty(reading);
    return reading;
  }
  void note_uncertainty(const ClockReading& reading) {
    uncertainty_ns_ = std::max(uncertainty_ns_, reading.uncertainty_ns + reading.event_uncertainty_ns);
  }

  Result<void> read_waits(const Alignment& alignment, StampedTimes& read) {
    std::uint32_t noted = 0;
    TANDEM_TRY(device_.copy_to_host(count_.view(), &noted));
    const std::int64_t kept = std::min<std::int64_t>(noted, num_waits_);
    read.num_lost_chunk_waits = noted - kept;
    if (noted == 0) return {};
    read.chunk_waits.resize(static_cast<std::size_t>(kept));
    TANDEM_TRY(device_.copy_to_host(waits_.view().narrow(0, 0, kept), read.chunk_waits.data()));
    constexpr std::uint32_t kNone = 0;
    TANDEM_TRY(device_.copy_from_host(&kNone, count_.view()));
    for (ChunkWait& wait : read.chunk_waits) {
      wait.begin = alignment.host_ns(wait.begin);
      wait.end = alignment.host_ns(wait.end);
    }
    return {};
  }

  Device& device_;
  const std::int64_t num_waits_;
  std::vector<TimedEvent> events_;  ///< made when they are first recorded
  std::vector<bool> is_taken_;
  std::size_t used_ = 0;  ///< all numbers from here on are untouched
  Tensor waits_;
  Tensor count_;
  ClockReading begin_;
  std::int64_t uncertainty_ns_ = 0;
};

class CudaStampService final : public StampService {
 public:
  Result<std::unique_ptr<Stamps>> create(Device& device, std::int32_t capacity) override {
    return CudaStamps::create(device, capacity);
  }
};

}  // namespace

std::shared_ptr<StampService> make_stamp_service() {
  return std::make_shared<CudaStampService>();
}

}  // namespace tandem::cuda
