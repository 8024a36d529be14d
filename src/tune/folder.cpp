#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <tandem/base/unique_fd.hpp>
#include <tandem/tune/folder.hpp>
#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"
#include "io/whole_file.hpp"

namespace tandem::tune {
namespace {

namespace fs = std::filesystem;

/// Errors: kDriver when it cannot be read, kParse when it holds no table of the device that its name says.
Result<Table> read_file(const fs::path& path) {
  // Far above what any table takes.
  constexpr std::uintmax_t kMostBytes = 4 << 20;
  std::error_code error;
  const std::uintmax_t num_bytes = fs::file_size(path, error);
  if (error) return failf(ErrorCode::kDriver, "{}", error.message());
  if (num_bytes > kMostBytes)
    return failf(ErrorCode::kParse, "{} bytes, need at most {}", num_bytes, kMostBytes);
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return fail(ErrorCode::kDriver, "it cannot be read");
  TANDEM_ASSIGN(Table table, parse_table(text));
  if (file_name_of(table.device) != path.filename())
    return failf(ErrorCode::kParse, "it is of the device '{}'", table.device);
  return table;
}

std::string warning_of(const fs::path& path, const Error& error) {
  return fmt::format("the table {} is not used: {}", path.native(), error.text());
}

Result<void> write_file(const fs::path& path, const std::string& text) {
  TANDEM_ASSIGN(auto file, io::WholeFile::create(path));
  TANDEM_TRY(file.write(text.data(), text.size()));
  return file.commit();
}

/// Held until it goes; a process that ends lets go of it.
Result<UniqueFd> lock(const fs::path& folder) {
  UniqueFd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid() || ::flock(directory.get(), LOCK_EX) != 0)
    return fail(ErrorCode::kDriver, fmt::format("{}: {}", folder.native(), std::strerror(errno)), errno);
  return directory;
}

}  // namespace

std::string file_name_of(std::string_view device) {
  constexpr std::size_t kLongest = 200;
  std::string name;
  for (const char c : device) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z');
    if (is_plain || (c >= 'A' && c <= 'Z'))
      name += is_plain ? c : static_cast<char>(c - 'A' + 'a');
    else if (!name.empty() && name.back() != '_')
      name += '_';
  }
  name.resize(std::min(name.size(), kLongest));
  while (!name.empty() && name.back() == '_') name.pop_back();
  return (name.empty() ? "device" : name) + ".json";
}

Tables read_folder(const fs::path& folder) {
  Tables all;
  if (folder.empty()) return all;
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (entry->path().extension() == ".json") paths.push_back(entry->path());
  }
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    if (auto table = read_file(path))
      all.tables.push_back(*std::move(table));
    else
      all.warnings.push_back(warning_of(path, table.error()));
  }
  return all;
}

Result<Written> add_rows(const fs::path& folder, std::string_view device, const std::vector<Row>& rows) {
  if (folder.empty()) return fail(ErrorCode::kInvalidArgument, "no folder for what was measured");
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return failf(ErrorCode::kDriver, "{}: {}", folder.native(), error.message());
  TANDEM_ASSIGN(const UniqueFd locked, lock(folder));
  Written written{.file = folder / file_name_of(device), .warning = {}};
  Table table{.device = std::string(device), .rows = {}};
  if (fs::exists(written.file, error)) {
    if (auto before = read_file(written.file))
      table = *std::move(before);
    else
      written.warning = warning_of(written.file, before.error());
  }
  for (const Row& row : rows) table.put(row);
  if (auto done = write_file(written.file, to_json(table)); !done)
    return failf(done.error().code(), "{}: {}", written.file.native(), done.error().text());
  return written;
}

}  // namespace tandem::tune
