#include "base/memory_limit.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "base/byte_size.hpp"
#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();  // an iterator would throw where the file cannot be read
  return text.str();
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

/// One version of the interface of control groups: how its files are called.
struct GroupFiles {
  const char* file_system;  ///< as /proc/self/mountinfo names it
  const char* most;
  const char* used;
  const char* inactive_cache;  ///< keys of memory.stat, of the group and all below it
  const char* active_cache;
};
constexpr GroupFiles kV1 = {"cgroup", "memory.limit_in_bytes", "memory.usage_in_bytes",
                            "total_inactive_file ", "total_active_file "};
constexpr GroupFiles kV2 = {"cgroup2", "memory.max", "memory.current", "inactive_file ", "active_file "};

bool is_in_list(std::string_view list, std::string_view word) {
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    if (list.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

/// The path of the process's group: from the line "0::PATH" (v2) or "N:...,memory,...:PATH" (v1) of
/// /proc/self/cgroup.
std::optional<std::string> group_path(std::istream& membership, const GroupFiles& files) {
  for (std::string line; std::getline(membership, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    const bool is_it = &files == &kV2 ? controllers.empty() : is_in_list(controllers, "memory");
    if (is_it) return line.substr(second + 1);
  }
  return std::nullopt;
}

/// Where a hierarchy is mounted, and which of its groups the mount begins with.
struct Mount {
  std::string group;
  std::string folder;
};

/// Of the line "ID PARENT DEVICE ROOT FOLDER OPTIONS [TAG ...] - TYPE SOURCE OPTIONS" of
/// /proc/self/mountinfo.
std::optional<Mount> mount_of(const std::string& mounts, const GroupFiles& files) {
  std::istringstream lines(mounts);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream front(line.substr(0, dash));
    std::istringstream back(line.substr(dash + 3));
    std::string skipped, type, source, options;
    Mount mount;
    front >> skipped >> skipped >> skipped >> mount.group >> mount.folder;
    back >> type >> source >> options;
    if (type == files.file_system && (&files == &kV2 || is_in_list(options, "memory"))) return mount;
  }
  return std::nullopt;
}

void tighten_by_group(MemoryLimit& limit, const std::string& root, const std::string& folder,
                      const GroupFiles& files) {
  const std::string place = root + folder;
  const std::int64_t most_bytes = leading_count(read_text(place + "/" + files.most));
  const std::int64_t used_bytes = leading_count(read_text(place + "/" + files.used));
  if (most_bytes < 0 || used_bytes < 0 || most_bytes - used_bytes >= limit.available_bytes) return;
  // The cache of files counts as used but is given up for new memory.
  const std::string statistics = read_text(place + "/memory.stat");
  const std::int64_t cache_bytes = std::max<std::int64_t>(0, count_of(statistics, files.inactive_cache)) +
                                   std::max<std::int64_t>(0, count_of(statistics, files.active_cache));
  tighten(limit, std::max<std::int64_t>(0, most_bytes - used_bytes + std::min(cache_bytes, used_bytes)),
          folder + "/" + files.most);
}

// Every group from this process's up to where the hierarchy is mounted may have a limit.
void tighten_by_groups(MemoryLimit& limit, const std::string& root, const GroupFiles& files) {
  std::ifstream membership(root + "/proc/self/cgroup");
  const auto own = group_path(membership, files);
  if (!own) return;
  const auto mount = mount_of(read_text(root + "/proc/self/mountinfo"), files);
  if (!mount) return;
  // In a container the path may be the host's, of which nothing but the mounted end is there.
  std::string path = *own;
  if (mount->group != "/" && path.starts_with(mount->group)) path.erase(0, mount->group.size());
  while (!path.empty() && path != "/") {
    tighten_by_group(limit, root, mount->folder + path, files);
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  tighten_by_group(limit, root, mount->folder, files);
}

}  // namespace

std::int64_t parse_available_bytes(std::string_view meminfo) {
  const std::int64_t kibibytes = count_of(meminfo, "MemAvailable:");
  return kibibytes < 0 || kibibytes > kNoLimit / 1024 ? -1 : kibibytes * 1024;
}

MemoryLimit memory_limit(const std::string& root) {
  MemoryLimit limit{kMostBytes, "the address space"};
  const std::string meminfo = read_text(root + "/proc/meminfo");
  const std::int64_t swap_kib = std::clamp<std::int64_t>(count_of(meminfo, "SwapFree:"), 0, kNoLimit >> 12);
  const std::int64_t available_bytes = parse_available_bytes(meminfo);
  if (available_bytes >= 0)
    tighten(limit, std::min(available_bytes, kNoLimit / 2) + swap_kib * 1024,
            "/proc/meminfo MemAvailable + SwapFree");
  tighten_by_groups(limit, root, kV2);
  tighten_by_groups(limit, root, kV1);
  return limit;
}

std::int64_t file_size_limit() {
  rlimit files{};
  if (::getrlimit(RLIMIT_FSIZE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return kNoLimit;
  return static_cast<std::int64_t>(std::min<rlim_t>(files.rlim_cur, kNoLimit));
}

Error out_of_memory(std::string_view what, std::int64_t num_bytes, const MemoryLimit& limit) {
  return Error(
      ErrorCode::kOutOfMemory,
      fmt::format("{}: {} bytes asked for, {} available by {}; use smaller tensors or raise this limit", what,
                  num_bytes, limit.available_bytes, limit.source));
}

Result<void> check_memory(std::string_view what, std::int64_t num_bytes) {
  const MemoryLimit limit = memory_limit();
  if (num_bytes <= limit.available_bytes) return {};
  return tl::unexpected(out_of_memory(what, num_bytes, limit));
}

Result<void> check_memory_file(std::string_view what, std::int64_t num_bytes) {
  const MemoryLimit limit{file_size_limit(), "the file size limit (ulimit -f)"};
  if (num_bytes > limit.available_bytes) return tl::unexpected(out_of_memory(what, num_bytes, limit));
  return check_memory(what, num_bytes);
}

}  // namespace tandem
