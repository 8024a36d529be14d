#pragma once

#include <sys/types.h>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/base/unique_fd.hpp>

#include "bootstrap/private_directory.hpp"

namespace tandem::bootstrap {

/// A listening socket in a directory of its own; both go with the object.
class Listener {
 public:
  [[nodiscard]] static Result<Listener> create();

  [[nodiscard]] int socket() const { return socket_.get(); }
  [[nodiscard]] std::string path() const { return directory_.socket_path(); }

 private:
  explicit Listener(PrivateDirectory directory) : directory_(std::move(directory)) {}
  PrivateDirectory directory_;
  UniqueFd socket_;
};

/// The user at the other end of a connected local socket, as the system says.
[[nodiscard]] Result<uid_t> user_of_peer(int socket);

/// 32 random bytes as hex.
[[nodiscard]] Result<std::string> make_token();

/// In a time that does not depend on where they differ.
[[nodiscard]] bool equal_secrets(const std::string& x, const std::string& y);

}  // namespace tandem::bootstrap
