#include "io/folder.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "base/format.hpp"
#include "base/try.hpp"
#include "io/errors.hpp"
#include "io/whole_file.hpp"

namespace tandem::io {
namespace {

namespace fs = std::filesystem;

/// The folder itself, or the one above it in which it has to be made first.
fs::path nearest_there(const fs::path& folder) {
  fs::path there = fs::path(folder / "").parent_path();  // without a slash at its end
  for (;;) {
    struct stat status {};
    if (::lstat(there.c_str(), &status) == 0 || errno != ENOENT) return there;
    const fs::path above = there.parent_path();
    if (above.empty() || above == there) return above.empty() ? "." : above;
    there = above;
  }
}

}  // namespace

Result<void> check_folder(const fs::path& folder) {
  if (folder.empty()) return fail(ErrorCode::kInvalidArgument, "the name of the folder is empty");
  // Without commit() nothing is left of it.
  const auto file = WholeFile::create(nearest_there(folder) / ".tandem-check");
  if (file || file.error().code() == ErrorCode::kInvalidArgument) return {};  // something has that name
  const Error& why = file.error();
  return fail(why.code(), fmt::format("{}: {}", folder.native(), why.text()), why.native_code());
}

Result<void> make_folder(const fs::path& folder) {
  if (folder.empty()) return fail(ErrorCode::kInvalidArgument, "the name of the folder is empty");
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return system_error(folder.native(), error.value());
  return {};
}

}  // namespace tandem::io
