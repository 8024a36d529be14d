#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/device/chunk_waits.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <vector>

#include "base/host_clock.hpp"

namespace tandem {

/// Times at places of streams.
struct StampedTimes {
  static constexpr std::int64_t kNever = -1;
  std::vector<std::int64_t>
      at;  ///< by number, in ns of the host's CLOCK_MONOTONIC; kNever where none was taken
  std::vector<ChunkWait> chunk_waits;     ///< in the same unit
  std::int64_t num_lost_chunk_waits = 0;  ///< beyond the log's capacity
};

/// Takes the time at places of a device's streams. Its memory stays until the streams have passed them. One
/// host thread at a time may use it.
class Stamps {
 public:
  virtual ~Stamps() = default;
  Stamps() = default;
  Stamps(const Stamps&) = delete;
  Stamps& operator=(const Stamps&) = delete;

  /// Enqueues: when the stream gets here, its time becomes number `at`, which is taken once between two
  /// read(). It is skipped, as other work is, behind a fault.
  /// Errors:  kInvalidArgument for a number outside [0, capacity); kUnsupported while the stream is recorded.
  [[nodiscard]] virtual Result<void> take(Stream& stream, std::int32_t at) = 0;

  /// For a product that is enqueued next. Its `waits` are null where kernels note none.
  [[nodiscard]] virtual ChunkWaitLog chunk_waits(std::int32_t tag) = 0;

  /// All times since the last read(), and starts anew. The streams have been synchronized.
  [[nodiscard]] virtual Result<StampedTimes> read() = 0;

  /// What a time may differ by from the host's clock. Times of two devices may differ by the sum.
  [[nodiscard]] virtual std::int64_t uncertainty_ns() const = 0;
  /// A text for people: "CLOCK_MONOTONIC".
  [[nodiscard]] virtual std::string_view clock() const = 0;
};

/// Makes them: a service of a device.
class StampService {
 public:
  virtual ~StampService() = default;

  /// Numbers [0, capacity), and room for as many waits for chunks. Errors: kOutOfMemory, kDriver.
  [[nodiscard]] virtual Result<std::unique_ptr<Stamps>> create(Device& device, std::int32_t capacity) = 0;
};

}  // namespace tandem
