#include "support/leak_oracle.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

namespace tandem::testing {
namespace fs = std::filesystem;
namespace {

/// "socket:[123]" -> "socket": numbers differ from run to run.
std::string kind_of(const std::string& target) {
  return target.substr(0, target.find(":["));
}

}  // namespace

LeakOracle::LeakOracle()
    : directory_((fs::temp_directory_path() / "tandem-test-XXXXXX").string()),
      former_directory_(fs::temp_directory_path().string()) {
  if (::mkdtemp(directory_.data()) == nullptr) std::abort();
  ::setenv("TMPDIR", directory_.c_str(), 1);
  before_ = take();
}

LeakOracle::~LeakOracle() {
  ::setenv("TMPDIR", former_directory_.c_str(), 1);
  std::error_code ignored;
  fs::remove_all(directory_, ignored);
}

LeakOracle::Inventory LeakOracle::take() const {
  Inventory inventory;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    const fs::path target = fs::read_symlink(entry.path(), gone);
    if (!gone && target.string().find("/proc/") != 0) ++inventory["file " + kind_of(target.string())];
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(" rw-s ") != std::string::npos)
      ++inventory["shared mapping " + line.substr(line.rfind(' ') + 1)];
  }
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::ifstream children(task.path() / "children");
    for (std::string pid; children >> pid;) ++inventory["child " + pid];
  }
  for (const auto& entry : fs::directory_iterator("/dev/shm", gone)) {
    const std::string name = entry.path().filename().string();
    if (name.find("tandem") != std::string::npos) ++inventory["/dev/shm/" + name];
  }
  for (const auto& entry : fs::recursive_directory_iterator(directory_, gone))
    ++inventory[entry.path().string()];
  return inventory;
}

std::string LeakOracle::leaks() const {
  std::string text;
  for (int i = 0; i < 50; ++i) {
    text.clear();
    for (const auto& [what, count] : take()) {
      const auto found = before_.find(what);
      const int before = found == before_.end() ? 0 : found->second;
      if (count > before)
        text += what + ": " + std::to_string(before) + " before, " + std::to_string(count) + " now\n";
    }
    if (text.empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return text;
}

}  // namespace tandem::testing
