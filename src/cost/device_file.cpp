#include "cost/device_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/format.hpp"
#include "base/try.hpp"
#include "base/uninterrupted.hpp"
#include "io/file_lock.hpp"
#include "io/json_value.hpp"
#include "io/regular_file.hpp"
#include "io/whole_file.hpp"

namespace tandem::cost {

namespace fs = std::filesystem;

bool is_missing(const Error& error) {
  return error.code() == ErrorCode::kDriver && error.native_code() == ENOENT;
}

std::string warning_of(std::string_view what, const fs::path& path, const Error& error) {
  return fmt::format("the {} {} is not used: {}", what, path.native(), error.text());
}

tl::unexpected<Error> at(const fs::path& path, const Error& error) {
  return fail(error.code(), fmt::format("{}: {}", path.native(), error.text()), error.native_code());
}

Result<void> write_file(const fs::path& path, const std::string& text, bool is_flushed) {
  const io::WholeFile::Options options{.links = io::WholeFile::Links::kRefuse, .is_flushed = is_flushed};
  if (const auto done = io::WholeFile::put(path, text, options); !done) return at(path, done.error());
  return {};
}

Result<std::string> read_own_file(const fs::path& path, std::size_t most_bytes) {
  return io::read_small_file(path, most_bytes, io::Trust::kOwnOnly);
}

Result<UniqueFd> lock(const fs::path& folder, std::chrono::milliseconds patience) {
  // Nobody else can open it, so nobody else can keep it locked.
  constexpr mode_t kOwnOnly = 0600;
  const fs::path path = folder / fmt::format(".lock-{}", ::geteuid());
  constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  UniqueFd file(uninterrupted([&] { return ::open(path.c_str(), kFlags, kOwnOnly); }));
  if (!file.valid()) {
    const int number = errno;
    return fail(ErrorCode::kDriver,
                fmt::format("{}: {}", path.native(), std::generic_category().message(number)), number);
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: not a file of user {}: remove it, or name another folder", path.native(),
                            ::geteuid()));
  }
  if (const auto locked = io::lock_file(file.get(), patience); !locked) return at(path, locked.error());
  return file;
}

std::string file_head(int format, std::string_view device, std::string_view rows_key) {
  // A device's name may be no UTF-8, which JSON has to be.
  const std::string name =
      nlohmann::json(device).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return fmt::format("{{\"format\": {}, \"library\": \"{}\", \"device\": {},\n \"{}\": [", format,
                     TANDEM_VERSION, name, rows_key);
}

Result<void> read_rows(const fs::path& path, const FileOfRows& file,
                       FunctionRef<Result<void>(const nlohmann::json&)> read_row) {
  TANDEM_ASSIGN(const std::string text, read_own_file(path, file.most_bytes));
  TANDEM_ASSIGN(const nlohmann::json value, io::parse_json_object(text));
  try {
    if (value.at("format") != file.format || value.at("library") != TANDEM_VERSION) {
      return failf(ErrorCode::kParse, "format {} of tandem {}, need format {} of tandem {}",
                   io::shown(value.at("format")), io::shown(value.at("library")), file.format,
                   TANDEM_VERSION);
    }
    if (value.at("device") != file.device)
      return failf(ErrorCode::kInvalidArgument, "it is of the device {}", io::shown(value.at("device")));
    return read_each_row(value.at(file.rows_key), read_row);
  } catch (const nlohmann::json::exception& error) {
    return fail(ErrorCode::kParse, io::reason_of(error));
  }
}

Result<void> read_each_row(const nlohmann::json& rows,
                           FunctionRef<Result<void>(const nlohmann::json&)> read_row) {
  if (!rows.is_array()) return failf(ErrorCode::kParse, "the rows are {}, need a list", io::shown(rows));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    try {
      if (const auto done = read_row(rows[i]); !done)
        return failf(done.error().code(), "row {}: {}", i, done.error().text());
    } catch (const nlohmann::json::exception& error) {
      return failf(ErrorCode::kParse, "row {}: {}", i, io::reason_of(error));
    }
  }
  return {};
}

}  // namespace tandem::cost
