#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>

#include <atomic>
#include <limits>
#include <string_view>

#include "base/format.hpp"
#include "base/overlap.hpp"
#include "base/try.hpp"
#include "device/check_view.hpp"

namespace tandem {
namespace {

constexpr std::int64_t kLargestWord = std::numeric_limits<std::uint32_t>::max();

/// What the ops on words have in common; `offset` alone is left to the caller, who knows how many words it
/// means.
Result<void> check_write(std::string_view op, const Device& device, const TensorView& words,
                         std::int64_t value) {
  TANDEM_TRY(check_words(op, "words", words));
  TANDEM_TRY(check_view(op, "words", words, device));
  TANDEM_TRY(check_writable(op, {"words", -1, &words}));
  if (value < 0 || value > kLargestWord) {
    return failf(ErrorCode::kInvalidArgument, "{}: value {} outside [0, {}]", op, value, kLargestWord);
  }
  return {};
}

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

Stream::Stream(Device& device, int priority) : device_(device), priority_(priority), id_(next_id()) {}

Result<void> Stream::copy(const TensorView& from, const TensorView& to) {
  if (from.dtype != to.dtype) {
    return failf(ErrorCode::kInvalidArgument, "copy: types differ, {} to {}", to_string(from.dtype),
                 to_string(to.dtype));
  }
  if (!(from.sizes == to.sizes)) {
    return failf(ErrorCode::kInvalidArgument, "copy: sizes differ, {} to {}", to_string(from.sizes),
                 to_string(to.sizes));
  }
  TANDEM_TRY(check_view("copy", "from", from, device_));
  TANDEM_TRY(check_view("copy", "to", to, device_));
  TANDEM_ASSIGN(const bool differs, check_copy("copy", {"from", -1, &from}, {"to", -1, &to}));
  if (!differs || from.numel() == 0) return {};
  return do_copy(from, to);
}

Result<void> Stream::stream_write_value32(const TensorView& words, std::int64_t offset, std::int64_t value) {
  TANDEM_TRY(check_write("stream_write_value32", device_, words, value));
  if (offset < 0 || offset >= words.size(0)) {
    return failf(ErrorCode::kInvalidArgument, "stream_write_value32: offset {} outside [0, {})", offset,
                 words.size(0));
  }
  return do_write_value32(words.data_as<std::uint32_t>() + offset, static_cast<std::uint32_t>(value));
}

Result<void> Stream::memset32(const TensorView& words, std::int64_t offset, std::int64_t value,
                              std::int64_t count) {
  TANDEM_TRY(check_write("memset32", device_, words, value));
  if (offset < 0) return failf(ErrorCode::kInvalidArgument, "memset32: offset {} is negative", offset);
  if (count < 1) return failf(ErrorCode::kInvalidArgument, "memset32: count {}, need at least 1", count);
  if (offset > words.size(0) || count > words.size(0) - offset) {
    return failf(ErrorCode::kInvalidArgument, "memset32: offset {} and count {} exceed {} words", offset,
                 count, words.size(0));
  }
  return do_memset32(words.data_as<std::uint32_t>() + offset, static_cast<std::uint32_t>(value), count);
}

Result<void> Stream::sleep(std::chrono::nanoseconds duration) {
  if (duration.count() < 0) {
    return failf(ErrorCode::kInvalidArgument, "sleep: {} ns, need at least 0", duration.count());
  }
  return do_sleep(duration);
}

Result<void> Stream::record(Event& event) {
  return do_record(event);
}

Result<void> Stream::wait(const Event& event) {
  return do_wait(event);
}

Result<void> Stream::wait(Stream& other) {
  return do_wait(other);
}

Result<void> Stream::synchronize(Deadline deadline) {
  return do_synchronize(deadline);
}

Result<void> Stream::do_begin_capture() {
  return failf(ErrorCode::kUnsupported, "begin_capture: {} has no graphs", to_string(device_.id()));
}

Result<std::unique_ptr<Graph>> Stream::do_end_capture() {
  return failf(ErrorCode::kUnsupported, "end_capture: {} has no graphs", to_string(device_.id()));
}

}  // namespace tandem
