#pragma once

#include <string>
#include <tandem/base/error.hpp>
#include <tandem/base/unique_fd.hpp>

namespace tandem::bootstrap {

/// A listening socket in a directory of its own that only this user may enter; both go with the object.
class Listener {
 public:
  [[nodiscard]] static Result<Listener> create();
  Listener(Listener&& other) noexcept = default;
  Listener& operator=(Listener&& other) noexcept;
  ~Listener() { remove(); }

  [[nodiscard]] int socket() const { return socket_.get(); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  Listener() = default;
  void remove();
  UniqueFd socket_;
  std::string directory_;
  std::string path_;
};

/// 32 random bytes as hex.
[[nodiscard]] Result<std::string> make_token();

/// In a time that does not depend on where they differ.
[[nodiscard]] bool equal_secrets(const std::string& x, const std::string& y);

}  // namespace tandem::bootstrap
