#include "outputs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <set>

#include "failure.hpp"
#include "io/folder.hpp"
#include "io/whole_file.hpp"
#include "row_file.hpp"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

struct Ledger {
  std::timed_mutex mutex;  ///< of a Writing, for as long as it lasts
  std::string being_written;
  std::vector<std::string> files;
  std::map<std::string, int> rows;
  std::set<fs::path> claimed;  ///< by the main thread alone
};
Ledger& ledger() {
  static Ledger all;
  return all;
}

[[noreturn]] void cannot_be_written(const std::string& flag, const std::string& path, const Error& why) {
  const bool is_missing = why.native_code() == ENOENT;
  bad_input(fmt::format("{} {}: {}; {}", flag, path, why.text(),
                        is_missing ? "make its folder first" : "name a file that can be written"));
}

void claim_name(const std::string& flag, const fs::path& path) {
  std::error_code ignored;  // one file may have several names
  if (ledger().claimed.insert(fs::weakly_canonical(fs::absolute(path), ignored)).second) return;
  bad_input(fmt::format("{} {}: the same file twice; name each output differently", flag, path.native()));
}

std::string in_words(const Ledger& all) {
  std::vector<std::string> parts = all.files;
  for (const auto& [path, count] : all.rows)
    parts.push_back(fmt::format("{} row{} in {}", count, count == 1 ? "" : "s", path));
  return parts.empty() ? "nothing was written" : fmt::format("kept: {}", fmt::join(parts, ", "));
}

}  // namespace

void claim_output(const std::string& flag, const std::string& path) {
  if (path.empty()) return;
  // Without commit() nothing is left of it.
  if (const auto file = io::WholeFile::create(path); !file) cannot_be_written(flag, path, file.error());
  claim_name(flag, path);
}

void claim_rows(const std::string& flag, const std::string& path) {
  if (path.empty()) return;
  if (const auto can = check_rows(path); !can) cannot_be_written(flag, path, can.error());
  claim_name(flag, path);
}

void claim_in_folder(const std::string& flag, const fs::path& folder, const std::vector<std::string>& names) {
  if (const auto can = io::check_folder(folder); !can)
    bad_input(fmt::format("{} {}; name a folder that can be written", flag, can.error().text()));
  std::error_code ignored;
  for (const std::string& name : names) {
    const fs::path path = folder / name;
    if (fs::symlink_status(path, ignored).type() == fs::file_type::not_found)
      claim_name(flag, path);
    else
      claim_output(flag, path);
  }
}

Writing::Writing(std::string path) : path_(std::move(path)) {
  ledger().mutex.lock();
  ledger().being_written = path_;
}

Writing::~Writing() {
  ledger().mutex.unlock();
}

void Writing::kept() const {
  ledger().files.push_back(path_);
}

void Writing::kept_row() const {
  ++ledger().rows[path_];
}

void write_output(const std::string& flag, const std::string& path, const std::string& text) {
  const Writing writing(path);
  if (const auto put = io::WholeFile::put(path, text, {}); !put) {
    const Error& why = put.error();
    throw Failure(kFailed,
                  Error(why.code(), fmt::format("{} {}: {}", flag, path, why.text()), why.native_code()));
  }
  writing.kept();
}

std::string kept_in_words() {
  const std::lock_guard lock(ledger().mutex);
  return in_words(ledger());
}

std::string kept_at_the_end(std::chrono::milliseconds patience) {
  if (ledger().mutex.try_lock_for(patience)) return in_words(ledger());  // and never lets go
  return fmt::format("{} was being written, and may be there", ledger().being_written);
}

}  // namespace tandem::cli
