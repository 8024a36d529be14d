#include "bootstrap/failure_report.hpp"

#include <algorithm>
#include <cstring>

#include "base/format.hpp"
#include "bootstrap/local_store_message.hpp"

namespace tandem::bootstrap {
namespace {

struct ReportHead {
  std::int32_t code = 0;
  std::int64_t native_code = 0;
};

std::string report_key(int rank) {
  return fmt::format("tandem/job/failure/{}", rank);
}

}  // namespace

Store::Bytes to_bytes(const Error& error) {
  const ReportHead head{static_cast<std::int32_t>(error.code()), error.native_code()};
  const std::size_t length = std::min(error.text().size(), kMaxValueBytes - sizeof(head));
  Store::Bytes bytes(sizeof(head) + length);
  std::memcpy(bytes.data(), &head, sizeof(head));
  std::memcpy(bytes.data() + sizeof(head), error.text().data(), length);
  return bytes;
}

std::optional<Error> error_of(const Store::Bytes& bytes) {
  ReportHead head;
  if (bytes.size() < sizeof(head)) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof(head));
  const auto code = std::clamp(head.code, 0, static_cast<std::int32_t>(ErrorCode::kInternal));
  return Error(
      static_cast<ErrorCode>(code),
      std::string(reinterpret_cast<const char*>(bytes.data()) + sizeof(head), bytes.size() - sizeof(head)),
      head.native_code);
}

Result<void> write_failure(Store& store, int rank, const Error& error) {
  return store.set(report_key(rank), to_bytes(error));
}

std::optional<Error> read_failure(Store& store, int rank) {
  const auto bytes = store.get(report_key(rank), Deadline::after(std::chrono::nanoseconds(0)));
  return bytes ? error_of(*bytes) : std::nullopt;
}

}  // namespace tandem::bootstrap
