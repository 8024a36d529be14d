#include <algorithm>
#include <cerrno>
#include <string>
#include <tandem/io/checkpoint.hpp>
#include <vector>

#include "base/format.hpp"
#include "base/try.hpp"
#include "io/errors.hpp"
#include "io/regular_file.hpp"
#include "io/safetensors_file.hpp"
#include "io/text_cursor.hpp"
#include "io/weight_map.hpp"

namespace tandem::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".safetensors";
constexpr std::string_view kIndexEnding = ".safetensors.index.json";

constexpr std::size_t kMostFiles = 10;  ///< that an error names

/// Names of a folder's files with this ending, sorted; of more than kMostFiles, any of them.
Result<std::vector<std::string>> files_ending_in(const fs::path& folder, std::string_view ending) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator next(folder, error);
  for (; !error && next != fs::directory_iterator() && names.size() < kMostFiles; next.increment(error)) {
    const std::string& path = next->path().native();
    std::error_code unknown;
    if (path.ends_with(ending) && !next->is_directory(unknown))
      names.push_back(next->path().filename().native());
  }
  if (error) return system_error("cannot list the folder", error.value());
  std::sort(names.begin(), names.end());
  return names;
}

/// The file that a folder stands for.
Result<fs::path> only_file_of(const fs::path& folder) {
  for (const std::string_view ending : {kIndexEnding, kEnding}) {
    TANDEM_ASSIGN(const auto names, files_ending_in(folder, ending));
    if (names.size() == 1) return folder / names[0];
    if (names.empty()) continue;
    std::string list;
    for (const std::string& name : names)
      list += fmt::format("{}'{}'", list.empty() ? "" : ", ", printable_name(name));
    if (names.size() == kMostFiles) list += " and maybe more";
    return failf(ErrorCode::kInvalidArgument, "the folder holds several: name one of {}", list);
  }
  return failf(ErrorCode::kInvalidArgument, "the folder holds no *{} and no *{}", kIndexEnding, kEnding);
}

/// Judges a file name of an index by its text: what a link in the folder points to is its owner's choice.
Result<void> check_file_name(std::string_view name) {
  const auto wrong = [&](std::string_view text) {
    return failf(ErrorCode::kParse, "the index names the file '{}', {}", printable_name(name), text);
  };
  const fs::path path(name);
  const bool leads_out = path.is_absolute() || std::find(path.begin(), path.end(), "..") != path.end();
  if (leads_out) return wrong("which leads out of its folder");
  if (name.find('\0') != std::string_view::npos) return wrong("which is no file's name");
  if (!name.ends_with(kEnding)) return wrong(fmt::format("need one that ends in {}", kEnding));
  return {};
}

}  // namespace

struct Checkpoint::Impl {
  fs::path file;    // the index or the only file
  fs::path folder;  // of the file, as it was given: a link is not followed
  WeightMap map;
  bool has_index = false;

  [[nodiscard]] static Result<std::unique_ptr<const Impl>> open(const fs::path& file) {
    auto impl = std::make_unique<Impl>();
    impl->file = file;
    impl->folder = file.parent_path();
    impl->has_index = file.native().ends_with(".json");
    if (impl->has_index) {
      TANDEM_ASSIGN(const std::string text, read_small_file(file, kMaxIndexBytes));
      TANDEM_ASSIGN(impl->map, WeightMap::parse(text));
    } else {
      TANDEM_ASSIGN(const auto open, SafetensorsFile::open(file));
      impl->map = WeightMap::of_file(file.filename().native(), open.header);
    }
    return impl;
  }

  [[nodiscard]] Result<Tensor> read(std::string_view wanted) const {
    const auto name_of = [&](std::size_t idx) { return map.name(idx); };
    TANDEM_ASSIGN(const std::size_t entry, choose_name({map.size(), name_of}, wanted));
    const std::string_view name = map.name(entry);
    if (!has_index) return read_from(file, name);
    const std::string_view from = map.file(entry);
    TANDEM_TRY(check_file_name(from));
    return read_from(folder / from, name).map_error([&](const Error& error) {
      return Error(error.code(), fmt::format("in '{}': {}", printable_name(from), error.text()),
                   error.native_code());
    });
  }

  [[nodiscard]] Result<Tensor> read_from(const fs::path& from, std::string_view name) const {
    const auto open = SafetensorsFile::open(from);
    if (!open && open.error().native_code() == ENOENT) {
      return fail(ErrorCode::kDriver,
                  fmt::format("tensor '{}' is in it, but the file is not there: put it beside the index",
                              printable_name(name)),
                  ENOENT);
    }
    if (!open) return tl::unexpected(open.error());
    const SafetensorsHeader& header = open->header;
    for (std::size_t i = 0; i < header.size(); ++i) {
      if (header.name(i) == name) return open->tensor(i);
    }
    const auto name_of = [&](std::size_t idx) { return header.name(idx); };
    return failf(ErrorCode::kParse, "no tensor '{}', there is {}", printable_name(name),
                 header.size() == 0 ? "no tensor" : list_names({header.size(), name_of}, name));
  }
};

Result<Checkpoint> Checkpoint::open(const fs::path& path) {
  constexpr std::string_view kCall = "Checkpoint::open";
  TANDEM_ASSIGN(const fs::path file, at_edge(kCall, path, [&]() -> Result<fs::path> {
                  std::error_code ignored;
                  if (fs::is_directory(path, ignored)) return only_file_of(path);
                  return path;
                }));
  return at_edge(kCall, file, [&]() -> Result<Checkpoint> {
    TANDEM_ASSIGN(auto impl, Impl::open(file));
    return Checkpoint(std::move(impl));
  });
}

Checkpoint::Checkpoint(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

std::size_t Checkpoint::size() const {
  return impl_->map.size();
}

std::string_view Checkpoint::name(std::size_t idx) const& {
  return impl_->map.name(idx);
}

Result<Tensor> Checkpoint::read(std::string_view name) const {
  return at_edge("Checkpoint::read", impl_->file, [&] { return impl_->read(name); });
}

}  // namespace tandem::io
