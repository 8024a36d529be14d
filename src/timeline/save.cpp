#include <time.h>
#include <unistd.h>

#include <array>
#include <system_error>
#include <tandem/timeline/timeline.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "io/whole_file.hpp"

namespace tandem {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string utc_now() {
  std::array<char, 32> text{};
  const time_t now = ::time(nullptr);
  tm utc{};
  ::gmtime_r(&now, &utc);
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

tl::unexpected<Error> cannot_write(const std::filesystem::path& path, const Error& why) {
  return fail(why.code(), fmt::format("timeline: cannot write '{}': {}", path.native(), why.text()),
              why.native_code());
}

/// The file with its bytes, but not yet under its name.
Result<io::WholeFile> written(const std::filesystem::path& path, const std::string& text) {
  auto file = io::WholeFile::create(path);
  if (!file) return cannot_write(path, file.error());
  if (const auto done = file->write(text.data(), text.size()); !done) return cannot_write(path, done.error());
  return file;
}

Result<void> commit(io::WholeFile& file, const std::filesystem::path& path) {
  if (const auto done = file.commit(); !done) return cannot_write(path, done.error());
  return {};
}

}  // namespace

trace::Origin origin_here(std::string_view command) {
  return {.command = std::string(command), .date = utc_now(), .machine = host_name()};
}

Result<void> save(const trace::Trace& trace, const trace::Summary& summary, const trace::Origin& origin,
                  const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return fail(ErrorCode::kDriver,
                fmt::format("timeline: cannot make the folder '{}': {}; name one that can be written",
                            folder.native(), error.message()),
                error.value());
  const std::string json = to_json(trace, summary, origin);
  const std::filesystem::path paths[] = {folder / "trace.json", folder / "trace.html"};
  TANDEM_ASSIGN(auto events, written(paths[0], json));
  TANDEM_ASSIGN(auto page, written(paths[1], trace::to_html(json)));
  // A full disk leaves both files of the last time.
  TANDEM_TRY(commit(events, paths[0]));
  return commit(page, paths[1]);
}

}  // namespace tandem
