#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/base/unique_fd.hpp>
#include <tandem/bootstrap/store.hpp>

namespace tandem {

/// Where a LocalStoreServer listens, and the secret a client has to show.
struct LocalStoreAddress {
  std::string path;
  std::string token;  ///< 32 random bytes as hex; never put it on a command line
};

/// Serves a Store to processes of the same user on this host, over SOCK_SEQPACKET sockets that can carry open
/// files. Strangers (other uid, wrong token, other version, garbage) are closed and counted; the job goes on.
class LocalStoreServer {
 public:
  [[nodiscard]] static Result<std::unique_ptr<LocalStoreServer>> create();
  ~LocalStoreServer();
  LocalStoreServer(const LocalStoreServer&) = delete;
  LocalStoreServer& operator=(const LocalStoreServer&) = delete;

  /// One end of a new connection that needs no address: to be inherited by a child.
  [[nodiscard]] Result<UniqueFd> connect_pair();
  /// Opens a socket in a private directory (0700) below the temporary directory. The directory is removed
  /// once `expected_clients` have shown the token, or with the server.
  [[nodiscard]] Result<LocalStoreAddress> listen(int expected_clients);
  /// Number of connections refused so far.
  [[nodiscard]] std::int64_t num_refused() const;
  /// The store, without a socket, for the serving process itself.
  [[nodiscard]] std::shared_ptr<Store> local() const;

 private:
  class Impl;
  explicit LocalStoreServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// A client on a connection from connect_pair().
[[nodiscard]] Result<std::shared_ptr<Store>> open_local_store(UniqueFd connection);
/// A client of a listening server. Errors: kTimeout, kDriver, kInvalidArgument for a refused token.
[[nodiscard]] Result<std::shared_ptr<Store>> open_local_store(const LocalStoreAddress& address,
                                                              Deadline deadline);

}  // namespace tandem
