#include <fmt/format.h>

#include <tandem/base/error.hpp>

namespace tandem {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "InvalidArgument";
    case ErrorCode::kMismatch:
      return "Mismatch";
    case ErrorCode::kUnsupported:
      return "Unsupported";
    case ErrorCode::kOutOfMemory:
      return "OutOfMemory";
    case ErrorCode::kTimeout:
      return "Timeout";
    case ErrorCode::kPeerLost:
      return "PeerLost";
    case ErrorCode::kNumeric:
      return "Numeric";
    case ErrorCode::kDriver:
      return "Driver";
    case ErrorCode::kParse:
      return "Parse";
    case ErrorCode::kInternal:
      return "Internal";
  }
  return "Unknown";
}

std::string Error::to_string() const {
  if (native_code_ != 0)
    return fmt::format("{}: {} (code {})", tandem::to_string(code_), text_, native_code_);
  return fmt::format("{}: {}", tandem::to_string(code_), text_);
}

}  // namespace tandem
