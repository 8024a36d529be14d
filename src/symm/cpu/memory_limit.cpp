#include "symm/cpu/memory_limit.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>

namespace tandem::symm::cpu {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A whole number at the start of `text`, past blanks; -1 if there is none ("max" in a control group).
std::int64_t leading_count(std::string_view text) {
  const std::size_t digits = text.find_first_not_of(" \t");
  if (digits == std::string_view::npos) return -1;
  text.remove_prefix(digits);
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? value : -1;
}

// The count behind `key` at the start of a line; -1 if there is none.
std::int64_t count_of(std::string_view text, std::string_view key) {
  for (std::size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    if (at == 0 || text[at - 1] == '\n') return leading_count(text.substr(at + key.size()));
  }
  return -1;
}

void tighten(MemoryLimit& limit, std::int64_t available_bytes, std::string source) {
  if (available_bytes < 0 || available_bytes >= limit.available_bytes) return;
  limit = {available_bytes, std::move(source)};
}

// Unified hierarchy only: every group from this process's up to the root may have a limit.
void tighten_by_control_groups(MemoryLimit& limit) {
  const std::string membership = read_text("/proc/self/cgroup");
  const std::size_t at = membership.find("0::/");
  if (at == std::string::npos) return;
  std::string path = membership.substr(at + 3, membership.find('\n', at) - at - 3);
  for (;;) {
    const std::string folder = "/sys/fs/cgroup" + path;
    const std::int64_t most_bytes = leading_count(read_text(folder + "/memory.max"));
    const std::int64_t used_bytes = leading_count(read_text(folder + "/memory.current"));
    if (most_bytes >= 0 && used_bytes >= 0) {
      // Clean page cache counts as used but is given up for new memory.
      const std::int64_t cache_bytes =
          std::max<std::int64_t>(0, count_of(read_text(folder + "/memory.stat"), "inactive_file "));
      tighten(limit, std::max<std::int64_t>(0, most_bytes - used_bytes + cache_bytes),
              folder + "/memory.max");
    }
    const std::size_t parent = path.rfind('/');
    if (parent == std::string::npos || path == "/") return;
    path.resize(parent);
  }
}

}  // namespace

std::int64_t parse_available_bytes(std::string_view meminfo) {
  const std::int64_t kibibytes = count_of(meminfo, "MemAvailable:");
  return kibibytes < 0 || kibibytes > std::numeric_limits<std::int64_t>::max() / 1024 ? -1 : kibibytes * 1024;
}

MemoryLimit memory_limit() {
  MemoryLimit limit{std::numeric_limits<std::int64_t>::max(), "address space"};
  const std::string meminfo = read_text("/proc/meminfo");
  const std::int64_t swap_kib = std::max<std::int64_t>(0, count_of(meminfo, "SwapFree:"));
  const std::int64_t available_bytes = parse_available_bytes(meminfo);
  if (available_bytes >= 0)
    tighten(limit, available_bytes + swap_kib * 1024, "/proc/meminfo MemAvailable + SwapFree");
  tighten_by_control_groups(limit);
  rlimit files{};
  if (::getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur != RLIM_INFINITY) {
    tighten(limit, static_cast<std::int64_t>(files.rlim_cur), "the file size limit (ulimit -f)");
  }
  return limit;
}

}  // namespace tandem::symm::cpu
