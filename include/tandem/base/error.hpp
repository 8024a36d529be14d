#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace tandem {

/// The ten ways a call can fail. What the caller can do is the difference between them.
enum class ErrorCode : std::uint8_t {
  kInvalidArgument,  ///< This call's arguments are wrong; nothing was enqueued.
  kMismatch,         ///< Ranks disagree about what they run; every rank gets this error.
  kUnsupported,      ///< Correct, but not possible here; the text says why.
  kOutOfMemory,      ///< Memory could not be had; the text says how much was asked for.
  kTimeout,          ///< A deadline passed; the text says who waited for whom and for what.
  kPeerLost,         ///< A rank died, left or failed; the text names it.
  kNumeric,          ///< A value check failed (NaN guard).
  kDriver,           ///< The operating system or a driver refused a call; `native_code` is its code.
  kParse,            ///< A file or a text is malformed; the text says where.
  kInternal,         ///< A bug in tandem.
};

/// Name of the code without the leading k, for example "Timeout".
[[nodiscard]] std::string_view to_string(ErrorCode code);

/// What went wrong, with the values: got, needed, where.
class [[nodiscard]] Error {
 public:
  Error(ErrorCode code, std::string text, std::int64_t native_code = 0)
      : text_(std::move(text)), native_code_(native_code), code_(code) {}

  [[nodiscard]] ErrorCode code() const { return code_; }
  [[nodiscard]] const std::string& text() const { return text_; }
  /// errno or the driver's code; 0 where there is none.
  [[nodiscard]] std::int64_t native_code() const { return native_code_; }
  /// "Timeout: rank 1 waited ...".
  [[nodiscard]] std::string to_string() const;

 private:
  std::string text_;
  std::int64_t native_code_;
  ErrorCode code_;
};

/// A value or an Error. No exception crosses the public API.
template <class T>
using Result = tl::expected<T, Error>;

/// `return fail(ErrorCode::kParse, "...");` from a function that returns any Result.
[[nodiscard]] inline tl::unexpected<Error> fail(ErrorCode code, std::string text,
                                                std::int64_t native_code = 0) {
  return tl::unexpected<Error>(Error(code, std::move(text), native_code));
}

}  // namespace tandem
