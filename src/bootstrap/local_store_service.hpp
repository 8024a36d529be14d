#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tandem/base/deadline.hpp>
#include <tandem/bootstrap/local_store.hpp>
#include <thread>
#include <vector>

#include "base/home_process.hpp"
#include "bootstrap/listener.hpp"
#include "bootstrap/local_store_message.hpp"
#include "bootstrap/memory_store.hpp"

namespace tandem {

/// The serving thread and its connections.
class LocalStoreServer::Impl {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Impl>> create();
  ~Impl();

  [[nodiscard]] Result<UniqueFd> connect_pair();
  [[nodiscard]] Result<LocalStoreAddress> listen(int expected_clients);
  [[nodiscard]] std::int64_t num_refused() const { return num_refused_.load(); }
  [[nodiscard]] std::shared_ptr<Store> local() const { return store_; }

 private:
  /// A stranger until it has greeted. A get that finds nothing stays pending until the key comes or its slice
  /// is over.
  struct Connection {
    UniqueFd socket;
    bool needs_token = false;
    bool has_greeted = false;
    bool is_closed = false;
    Deadline greet_until = Deadline::never();
    std::optional<bootstrap::Message> pending;
    Deadline pending_until = Deadline::never();

    [[nodiscard]] bool is_stranger() const { return needs_token && !has_greeted && !is_closed; }
  };

  explicit Impl(std::shared_ptr<UniqueFd> wake);
  void notify();
  void run();
  void collect_polled(std::vector<struct pollfd>& polled);
  [[nodiscard]] int poll_timeout_ms() const;
  void accept_waiting();
  [[nodiscard]] std::size_t num_strangers() const;
  void close_longest_silent();
  void read(Connection& connection);
  void serve(Connection& connection, bootstrap::Message request);
  void greet(Connection& connection, const bootstrap::Message& hello);
  void answer_pending(Connection& connection);
  /// True if the reply has been sent.
  bool answer_get(Connection& connection, const bootstrap::Message& request);
  void reply(Connection& connection, const bootstrap::Message& request, const Result<std::int64_t>& outcome);
  void send(Connection& connection, bootstrap::MessageHead head, std::span<const std::byte> value,
            int file = -1);
  void close_as_stranger(Connection& connection);
  void remove_closed();

  friend class LocalStoreServer;
  const HomeProcess home_;                // of the thread
  const std::shared_ptr<UniqueFd> wake_;  // shared with the store's observer, which may outlive the server
  const std::shared_ptr<bootstrap::MemoryStore> store_;
  std::atomic<std::int64_t> num_refused_{0};

  std::mutex mutex_;  // for what other threads hand to the serving thread
  std::list<Connection> arrivals_;
  std::optional<bootstrap::Listener> listener_;
  std::string token_;
  int num_expected_ = 0;
  bool is_stopping_ = false;

  std::list<Connection> connections_;  // the serving thread's own
  std::thread thread_;
};

}  // namespace tandem
