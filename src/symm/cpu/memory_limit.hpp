#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::symm::cpu {

/// The tightest limit on memory that this process could still get, and where it comes from.
struct MemoryLimit {
  std::int64_t available_bytes = 0;
  std::string source;
};

/// Of the machine's available memory, the control groups' limits and the process's file size limit. Needed
/// before fallocate(): past the first two the kernel does not refuse but kills, past the last it sends
/// SIGXFSZ.
[[nodiscard]] MemoryLimit memory_limit();

/// The value of "MemAvailable:" in a text of the form of /proc/meminfo, in bytes; -1 if it is not there.
[[nodiscard]] std::int64_t parse_available_bytes(std::string_view meminfo);

}  // namespace tandem::symm::cpu
