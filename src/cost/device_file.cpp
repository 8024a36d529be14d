#include "cost/device_file.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <tandem/base/deadline.hpp>
#include <thread>

#include "base/format.hpp"
#include "base/try.hpp"
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

Result<void> write_file(const fs::path& path, const std::string& text) {
  const auto write = [&]() -> Result<void> {
    TANDEM_ASSIGN(auto file, io::WholeFile::create(path));
    TANDEM_TRY(file.write(text.data(), text.size()));
    return file.commit();
  };
  if (const auto done = write(); !done) return at(path, done.error());
  return {};
}

Result<void> make_folder(const fs::path& folder) {
  if (folder.empty()) return fail(ErrorCode::kInvalidArgument, "no folder for what was measured");
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    return fail(ErrorCode::kDriver, fmt::format("{}: {}", folder.native(), error.message()), error.value());
  return {};
}

Result<UniqueFd> lock(const fs::path& folder, std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kPause{5};
  UniqueFd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto deadline = Deadline::after(patience);
  while (!directory.valid() || ::flock(directory.get(), LOCK_EX | LOCK_NB) != 0) {
    const int number = errno;
    if (!directory.valid() || (number != EWOULDBLOCK && number != EINTR)) {
      return fail(ErrorCode::kDriver,
                  fmt::format("{}: {}", folder.native(), std::generic_category().message(number)), number);
    }
    if (deadline.expired()) {
      return fail(ErrorCode::kTimeout, fmt::format("{}: another program has had the folder locked for {} ms",
                                                   folder.native(), patience.count()));
    }
    std::this_thread::sleep_for(kPause);
  }
  return directory;
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
  TANDEM_ASSIGN(const std::string text, io::read_small_file(path, file.most_bytes));
  const auto value = nlohmann::json::parse(text, nullptr, false);
  if (value.is_discarded()) return fail(ErrorCode::kParse, "no JSON");
  try {
    if (value.at("format") != file.format || value.at("library") != TANDEM_VERSION) {
      return failf(ErrorCode::kParse, "format {} of tandem {}, need format {} of tandem {}",
                   shown(value.at("format")), shown(value.at("library")), file.format, TANDEM_VERSION);
    }
    if (value.at("device") != file.device)
      return failf(ErrorCode::kInvalidArgument, "it is of the device {}", shown(value.at("device")));
    for (const nlohmann::json& row : value.at(file.rows_key)) TANDEM_TRY(read_row(row));
  } catch (const nlohmann::json::exception& error) {
    return fail(ErrorCode::kParse, error.what());
  }
  return {};
}

std::string shown(const nlohmann::json& value) {
  if (value.is_structured()) return "an object or a list";
  return fmt::format("{:.40}", value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace tandem::cost
