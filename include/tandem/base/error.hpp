#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace tandem {

/// The ten ways in which a call can fail. They differ in what the caller can do.
enum class ErrorCode : std::uint8_t {
  kInvalidArgument,  ///< The call's arguments are wrong; nothing was enqueued.
  kMismatch,         ///< The ranks' calls differ; every rank gets this error.
  kUnsupported,      ///< The call is correct but not possible here; the text says why.
  kOutOfMemory,      ///< There is not enough memory; the text says how much was asked for.
  kTimeout,          ///< A deadline passed; the text says who waited for whom and for what.
  kPeerLost,         ///< A rank died, left or failed; the text names it.
  kNumeric,          ///< A value check failed (NaN guard).
  kDriver,           ///< The system or a driver refused a call; native_code() is its code.
  kParse,            ///< A file or a text is malformed; the text says where.
  kInternal,         ///< A bug in tandem.
};

/// The name of the code without the leading k, for example "Timeout".
[[nodiscard]] std::string_view to_string(ErrorCode code);

/// What went wrong, with the values: what was given, what is needed, and where.
class [[nodiscard]] Error {
 public:
  Error(ErrorCode code, std::string text, std::int64_t native_code = 0)
      : text_(std::move(text)), native_code_(native_code), code_(code) {}

  [[nodiscard]] ErrorCode code() const { return code_; }
  [[nodiscard]] const std::string& text() const { return text_; }
  /// The value of errno, or the driver's code. It is 0 where there is none.
  [[nodiscard]] std::int64_t native_code() const { return native_code_; }
  /// "Timeout: rank 1 waited ...".
  [[nodiscard]] std::string to_string() const;

 private:
  std::string text_;
  std::int64_t native_code_;
  ErrorCode code_;
};

/// A value or an Error. Public calls throw no exception.
template <class T>
using Result = tl::expected<T, Error>;

/// Makes an Error for a function that returns any Result: `return fail(ErrorCode::kParse, "...");`.
[[nodiscard]] inline tl::unexpected<Error> fail(ErrorCode code, std::string text,
                                                std::int64_t native_code = 0) {
  return tl::unexpected<Error>(Error(code, std::move(text), native_code));
}

}  // namespace tandem
