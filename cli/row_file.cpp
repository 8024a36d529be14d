#include "row_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "failure.hpp"
#include "version.hpp"

namespace tandem::cli {

RowFile::RowFile(const std::string& path) : path_(path) {
  if (path.empty()) return;
  fd_ = UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd_.valid())
    bad_input(fmt::format("--json {}: {}; name a file that can be written", path, std::strerror(errno)));
}

void RowFile::append(const nlohmann::json& row) const {
  if (!fd_.valid()) return;
  const std::string line = row.dump() + "\n";
  ::flock(fd_.get(), LOCK_EX);
  const ssize_t written = ::write(fd_.get(), line.data(), line.size());
  ::flock(fd_.get(), LOCK_UN);
  if (written == static_cast<ssize_t>(line.size())) return;
  throw Failure(kFailed, Error(ErrorCode::kDriver,
                               fmt::format("--json {}: wrote {} of {} bytes: {}", path_, written, line.size(),
                                           std::strerror(errno)),
                               errno));
}

void add_circumstances(nlohmann::json& row, const Invocation& invocation, const JobPlace& place) {
  if (place.placement.kind == DeviceKind::kCuda) {
    row["gpu"] = invocation.machine.gpus.front();
    row["gpu_states"] = gpu_states();
    row["loopback"] = place.placement.loopback;
  }
  row["cpu"] = invocation.machine.cpu_model;
  row["cores"] = invocation.machine.usable_cores();
  row["commit"] = kCommit;
  // Where a row is kept says nothing about how it was measured.
  std::vector<std::string> arguments = invocation.arguments;
  std::erase_if(arguments, [](const std::string& argument) { return argument.starts_with("--json="); });
  const auto flag = std::find(arguments.begin(), arguments.end(), "--json");
  if (flag != arguments.end()) arguments.erase(flag, std::min(flag + 2, arguments.end()));
  row["command"] = fmt::format("tandem {}", fmt::join(arguments, " "));
}

}  // namespace tandem::cli
