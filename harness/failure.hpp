#pragma once

#include <exception>
#include <new>
#include <string>
#include <tandem/base/error.hpp>
#include <utility>

namespace tandem::harness {

/// How a program ends, for the shell.
enum ExitCode : int {
  kOk = 0,
  kFailed = 1,        ///< wrong result or failed run
  kBadInput = 2,      ///< bad arguments or files, or larger than memory; nothing was written
  kStrict = 3,        ///< what --strict demands does not hold
  kNotSupported = 4,  ///< correct, but not possible here or not built yet
  kInterrupted = 128  ///< plus the signal's number
};

/// Ends a program: main() prints it as one line on stderr and exits with its code. Programs and tests throw;
/// the library never does.
class Failure : public std::exception {
 public:
  Failure(int exit_code, Error error) : error_(std::move(error)), exit_code_(exit_code) {}

  [[nodiscard]] int exit_code() const { return exit_code_; }
  [[nodiscard]] const Error& error() const { return error_; }
  [[nodiscard]] const char* what() const noexcept override { return error_.text().c_str(); }

 private:
  Error error_;
  int exit_code_;
};

/// Wrong flags or files: `text` names the cause, the values and the remedy.
[[noreturn]] inline void bad_input(std::string text) {
  throw Failure(kBadInput, Error(ErrorCode::kInvalidArgument, std::move(text)));
}

[[noreturn]] inline void not_supported(std::string text) {
  throw Failure(kNotSupported, Error(ErrorCode::kUnsupported, std::move(text)));
}

[[nodiscard]] inline int exit_code_of(const Error& error) {
  if (error.code() == ErrorCode::kOutOfMemory) return kBadInput;
  return error.code() == ErrorCode::kUnsupported ? kNotSupported : kFailed;
}

/// Of memory that was not there; the library's text says how much.
[[nodiscard]] inline Failure out_of_memory(const std::bad_alloc& lack) {
  return {kBadInput, Error(ErrorCode::kOutOfMemory, lack.what())};
}

/// The value, or a Failure with the library's error.
template <class T>
T take(Result<T> result) {
  if (!result) {
    const int exit_code = exit_code_of(result.error());
    throw Failure(exit_code, std::move(result).error());
  }
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

/// The value of something that was read from the user: whatever is wrong with it is exit 2.
template <class T>
T take_input(Result<T> result, const std::string& flag) {
  if (!result) bad_input(flag + ": " + result.error().text());
  return *std::move(result);
}

}  // namespace tandem::harness
