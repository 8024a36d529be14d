#pragma once

#include <cstdint>
#include <string>
#include <tandem/base/unique_fd.hpp>
#include <tandem/bootstrap/store.hpp>

namespace tandem::cli {

/// Memory that the launcher and its ranks share: where ranks put their parts of a large result. It has no
/// name, so nothing is left behind however a process ends.
class SharedBytes {
 public:
  /// In the launcher. Throws exit 2 with the bytes asked for and available when there is no room.
  explicit SharedBytes(std::int64_t num_bytes);
  /// In a rank: maps what the launcher published under `key`.
  static SharedBytes open(Store& store, const std::string& key);
  ~SharedBytes();
  SharedBytes(SharedBytes&& other) noexcept;
  SharedBytes& operator=(SharedBytes&&) = delete;

  void publish(Store& store, const std::string& key) const;
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::int64_t size_bytes() const { return num_bytes_; }

 private:
  SharedBytes(UniqueFd fd, std::int64_t num_bytes);
  void map();
  UniqueFd fd_;
  void* data_ = nullptr;
  std::int64_t num_bytes_ = 0;
};

}  // namespace tandem::cli
