#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>

namespace tandem {

// Linux gives out more memory than there is, and kills a process when it runs short. So who takes much memory
// asks here first.

/// The tightest limit on memory that this process could still get, and where it comes from.
struct MemoryLimit {
  std::int64_t available_bytes = 0;
  std::string source;
};

/// Of what is free on the machine and of the limits of the control groups, v1 and v2, that the process is in:
/// its own and every one above it.
/// `root`: the folder where /proc and /sys are looked for; tests have their own.
[[nodiscard]] MemoryLimit memory_limit(const std::string& root = "");

/// Whether `num_bytes` more can be had, by all processes that share them together. `what` begins the text of
/// the error. Errors: kOutOfMemory with the bytes asked for and available.
[[nodiscard]] Result<void> check_memory(std::string_view what, std::int64_t num_bytes);

/// As check_memory(), for a file of memory: its size is limited as any file's is. Past that limit the kernel
/// sends SIGXFSZ.
[[nodiscard]] Result<void> check_memory_file(std::string_view what, std::int64_t num_bytes);

/// The error of `num_bytes` that are not there.
[[nodiscard]] Error out_of_memory(std::string_view what, std::int64_t num_bytes, const MemoryLimit& limit);

/// The most bytes that a file may get (ulimit -f).
[[nodiscard]] std::int64_t file_size_limit();

/// The value of "MemAvailable:" in a text of the form of /proc/meminfo, in bytes; -1 if it is not there.
[[nodiscard]] std::int64_t parse_available_bytes(std::string_view meminfo);

}  // namespace tandem
