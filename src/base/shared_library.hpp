#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>

#include "base/try.hpp"

namespace tandem {

/// What was loaded, for people.
struct LibraryReport {
  std::string name;
  std::string path;
  std::string version;
};

/// A library, and where it may lie. A path from the Config comes first, and nothing is tried after it; then
/// the soname, as the dynamic loader looks it up; then the folders.
struct LibrarySearch {
  std::string_view name;      ///< for people: "cuBLASLt"
  std::string_view soname;    ///< "libcublasLt.so.13"
  std::string_view variable;  ///< the environment variable that `path` is from
  std::optional<std::string> path;
  std::span<const std::string_view> folders;  ///< patterns of glob(3), in this order
};

/// Where NVIDIA's libraries lie beside the loader's own folders: toolkits, then Python packages.
[[nodiscard]] std::span<const std::string_view> nvidia_library_folders();

/// A library that is loaded at run time, so that programs start where it is missing. Never unloaded: such
/// libraries have threads and exit handlers of their own.
class SharedLibrary {
 public:
  /// Errors: kUnsupported with every place that was tried and the loader's reason.
  [[nodiscard]] static Result<SharedLibrary> load(const LibrarySearch& search);

  /// The file that was loaded.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Sets `function` to the library's `symbol`. Errors: kUnsupported naming both.
  template <class Function>
  [[nodiscard]] Result<void> find(const char* symbol, Function*& function) const {
    TANDEM_ASSIGN(void* const address, address_of(symbol));
    function = reinterpret_cast<Function*>(address);
    return {};
  }

 private:
  SharedLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  [[nodiscard]] Result<void*> address_of(const char* symbol) const;

  void* handle_;
  std::string path_;
};

}  // namespace tandem
