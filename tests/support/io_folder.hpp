#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::tests {

/// A folder of a test's own, removed with all that is in it.
class Folder {
 public:
  Folder() {
    std::string pattern = ::testing::TempDir() + "tandem-io-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "cannot make a folder like " << pattern;
    path_ = pattern;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }

  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Names of what is in it, hidden ones included.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename());
    return names;
  }

 private:
  std::filesystem::path path_;
};

inline void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

[[nodiscard]] inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// `value` in `num_bytes` bytes, the lowest first.
[[nodiscard]] inline std::string little_endian(std::uint64_t value, int num_bytes) {
  std::string bytes;
  for (int i = 0; i < num_bytes; ++i) bytes += static_cast<char>((value >> (8 * i)) & 0xffU);
  return bytes;
}

/// A .npy file with this dictionary, version 1.0 with its two bytes of length or another with four.
[[nodiscard]] inline std::string npy_file(std::string_view dict, std::string_view data, int version = 1) {
  return "\x93NUMPY" + little_endian(static_cast<std::uint64_t>(version), 2) +
         little_endian(dict.size(), version == 1 ? 2 : 4) + std::string(dict) + std::string(data);
}

/// A .safetensors file with this header.
[[nodiscard]] inline std::string safetensors_file(std::string_view header, std::string_view data) {
  return little_endian(header.size(), 8) + std::string(header) + std::string(data);
}

}  // namespace tandem::tests
