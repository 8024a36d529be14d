#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/base/unique_fd.hpp>
#include <tandem/bootstrap/store.hpp>

namespace tandem {

/// The address of a LocalStoreServer, and the secret that a client must send.
struct LocalStoreAddress {
  std::string path;
  std::string token;  ///< 32 random bytes as hex; never put it on a command line
};

/// Serves a Store to processes of the same user on this host. Its SOCK_SEQPACKET sockets can carry open
/// files. The server closes and counts connections of strangers: another uid, a wrong token, another version
/// or garbage. The job goes on.
class LocalStoreServer {
 public:
  [[nodiscard]] static Result<std::unique_ptr<LocalStoreServer>> create();
  ~LocalStoreServer();
  LocalStoreServer(const LocalStoreServer&) = delete;
  LocalStoreServer& operator=(const LocalStoreServer&) = delete;

  /// Opens a connection that needs no address, and returns the client's end, for a child to inherit.
  [[nodiscard]] Result<UniqueFd> connect_pair();
  /// Opens a socket in a private directory (0700) below the temporary directory. The directory is removed
  /// when `expected_clients` clients have sent the token, or with the server.
  [[nodiscard]] Result<LocalStoreAddress> listen(int expected_clients);
  /// The number of connections that were refused so far.
  [[nodiscard]] std::int64_t num_refused() const;
  /// The store for the serving process itself, without a socket.
  [[nodiscard]] std::shared_ptr<Store> local() const;

 private:
  class Impl;
  explicit LocalStoreServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Opens a store on a connection of LocalStoreServer::connect_pair().
[[nodiscard]] Result<std::shared_ptr<Store>> open_local_store(UniqueFd connection);
/// Opens a store of a listening server.
/// Errors:  kTimeout, kDriver, kInvalidArgument for a refused token.
[[nodiscard]] Result<std::shared_ptr<Store>> open_local_store(const LocalStoreAddress& address,
                                                              Deadline deadline);

}  // namespace tandem
