#include "base/shared_library.hpp"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>

#include <vector>

#include "base/format.hpp"

namespace tandem {
namespace {

/// The file that the loader took for `handle`; `asked_for` where it does not say.
std::string path_of(void* handle, const std::string& asked_for) {
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 || map == nullptr) return asked_for;
  return map->l_name == nullptr || *map->l_name == '\0' ? asked_for : map->l_name;
}

/// Files that match, in the order of their names.
std::vector<std::string> matches_of(const std::string& pattern) {
  std::vector<std::string> files;
  glob_t found = {};
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  ::globfree(&found);
  return files;
}

/// Null when it cannot be loaded; the reason is added to `tried`.
void* open_file(const std::string& file, std::string& tried) {
  void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  const char* reason = ::dlerror();
  fmt::format_to(std::back_inserter(tried), "{}{}", tried.empty() ? "" : "; ",
                 reason == nullptr ? file : reason);
  return nullptr;
}

}  // namespace

std::span<const std::string_view> nvidia_library_folders() {
  static constexpr std::string_view kFolders[] = {
      "/usr/local/cuda/lib64",
      "/usr/local/cuda/lib",
      "/usr/local/cuda-1[3-9]*/lib64",
      "/usr/local/cuda-1[3-9]*/lib",
      "/usr/lib/python3*/*-packages/nvidia/*/lib",
      "/usr/local/lib/python3*/*-packages/nvidia/*/lib",
      "/opt/*/lib/python3*/*-packages/nvidia/*/lib",
      "/opt/*/.venv/lib/python3*/*-packages/nvidia/*/lib",
      "/opt/*/venv/lib/python3*/*-packages/nvidia/*/lib",
  };
  return kFolders;
}

Result<SharedLibrary> SharedLibrary::load(const LibrarySearch& search) {
  std::string tried;
  if (search.path) {
    if (void* handle = open_file(*search.path, tried))
      return SharedLibrary(handle, path_of(handle, *search.path));
    return failf(ErrorCode::kUnsupported, "{} cannot be loaded from {}='{}': {}", search.name,
                 search.variable, *search.path, tried);
  }
  const std::string soname(search.soname);
  if (void* handle = open_file(soname, tried)) return SharedLibrary(handle, path_of(handle, soname));
  for (const std::string_view folder : search.folders) {
    for (const std::string& file : matches_of(fmt::format("{}/{}", folder, search.soname))) {
      if (void* handle = open_file(file, tried)) return SharedLibrary(handle, path_of(handle, file));
    }
  }
  return failf(ErrorCode::kUnsupported, "{} was not found: {}; nor in {}; {} may name the file", search.name,
               tried, fmt::join(search.folders, ", "), search.variable);
}

Result<void*> SharedLibrary::address_of(const char* symbol) const {
  void* address = ::dlsym(handle_, symbol);
  if (address != nullptr) return address;
  return failf(ErrorCode::kUnsupported, "{} has no {}", path_, symbol);
}

}  // namespace tandem
