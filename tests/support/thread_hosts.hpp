#pragma once

#include <atomic>
#include <compare>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tandem/cpu/launch.hpp>
#include <tandem/tandem.hpp>
#include <thread>
#include <utility>
#include <vector>

namespace tandem::test {

/// What threads of this process send each other in place of a network.
class Wire {
 public:
  /// A message from one rank to another on one channel.
  struct Name {
    int from = 0;
    int to = 0;
    std::uint64_t channel = 0;
    std::int64_t number = 0;  ///< in the order in which both ends have started
    friend auto operator<=>(const Name&, const Name&) = default;
  };

  void send(const Name& name, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    if (is_cut_) return;
    messages_[name].assign(bytes.begin(), bytes.end());
    num_bytes_ += static_cast<std::int64_t>(bytes.size());
    has_come_.notify_all();
  }
  Result<std::vector<std::byte>> receive(const Name& name, std::chrono::milliseconds timeout,
                                         const std::function<Result<void>()>& status) {
    const auto end = std::chrono::steady_clock::now() + timeout;
    std::unique_lock lock(mutex_);
    auto message = messages_.find(name);
    while (message == messages_.end()) {
      lock.unlock();
      if (auto ok = status(); !ok) return tl::unexpected(ok.error());
      lock.lock();
      if (std::chrono::steady_clock::now() > end)
        return fail(ErrorCode::kTimeout, "rank " + std::to_string(name.to) + " waits for bytes of rank " +
                                             std::to_string(name.from) + " on another host");
      has_come_.wait_for(lock, std::chrono::milliseconds(2));
      message = messages_.find(name);
    }
    std::vector<std::byte> bytes = std::move(message->second);
    messages_.erase(message);
    return bytes;
  }
  /// What is sent from here on is lost.
  void cut() {
    const std::lock_guard lock(mutex_);
    is_cut_ = true;
  }
  [[nodiscard]] std::int64_t num_bytes() const {
    const std::lock_guard lock(mutex_);
    return num_bytes_;
  }
  /// Of all that was sent, what nobody has taken.
  [[nodiscard]] std::size_t num_left() const {
    const std::lock_guard lock(mutex_);
    return messages_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable has_come_;
  std::map<Name, std::vector<std::byte>> messages_;
  std::int64_t num_bytes_ = 0;
  bool is_cut_ = false;
};

/// One rank's end of it.
class WireTransport final : public Transport {
 public:
  WireTransport(std::shared_ptr<Wire> wire, int rank, int size)
      : wire_(std::move(wire)), rank_(rank), size_(size) {}
  std::string name() const override { return "a wire of the test"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Result<std::shared_ptr<Pending>> start(const Exchange& exchange, Stream& stream) override {
    auto pending = std::make_shared<Held>();
    pending->exchange = exchange;
    const bool sends = exchange.to >= 0 && !exchange.sent.empty();
    const bool receives = exchange.from >= 0 && !exchange.received.empty();
    if (receives) pending->name = next({exchange.from, rank_, exchange.channel});
    Wire::Name name;
    if (sends) name = next({rank_, exchange.to, exchange.channel});
    auto launched = cpu::launch(stream, cpu::Task([exchange, sends, name, wire = wire_]() -> Result<void> {
                                  if (sends) wire->send(name, exchange.sent);
                                  return {};
                                }));
    if (!launched) return tl::unexpected(launched.error());
    return std::shared_ptr<Pending>(std::move(pending));
  }
  Result<void> await(const std::shared_ptr<Pending>& pending, std::chrono::milliseconds timeout,
                     const std::shared_ptr<const Watch>& watch, Stream& stream) override {
    return cpu::launch(stream, cpu::Task([held = std::static_pointer_cast<Held>(pending), timeout, watch,
                                          wire = wire_]() -> Result<void> {
                         const Exchange& exchange = held->exchange;
                         if (exchange.from < 0 || exchange.received.empty()) return {};
                         const auto bytes = wire->receive(held->name, timeout, watch->status);
                         if (!bytes) {
                           watch->report(bytes.error());
                           return tl::unexpected(bytes.error());
                         }
                         if (bytes->size() != exchange.received.size()) {
                           const Error error(ErrorCode::kMismatch,
                                             "the other rank sent " + std::to_string(bytes->size()) +
                                                 " bytes, not " + std::to_string(exchange.received.size()));
                           watch->report(error);
                           return tl::unexpected(error);
                         }
                         std::memcpy(exchange.received.data(), bytes->data(), bytes->size());
                         return {};
                       }));
  }

 private:
  struct Held final : Pending {
    Exchange exchange;
    Wire::Name name;  ///< of what comes
  };
  Wire::Name next(Wire::Name name) {
    const std::lock_guard lock(mutex_);
    name.number = num_started_[name]++;
    return name;
  }

  std::shared_ptr<Wire> wire_;
  int rank_;
  int size_;
  std::mutex mutex_;
  std::map<Wire::Name, std::int64_t> num_started_;
};

/// Ranks of several hosts as threads of this process.
struct ThreadHosts {
  int num_hosts = 2;
  int ranks_per_host = 2;
  Config config = {};
  std::shared_ptr<Wire> wire = std::make_shared<Wire>();
  /// Sets another transport than the wire.
  std::function<Result<void>(GroupOptions&)> connect = {};
  [[nodiscard]] int size() const { return num_hosts * ranks_per_host; }

  /// Every rank's result, in rank order.
  [[nodiscard]] std::vector<Result<void>> run(const std::function<Result<void>(Group&)>& rank_main) const {
    const auto store = make_in_process_store();
    std::vector<Result<void>> results(static_cast<std::size_t>(size()));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] {
        GroupOptions options{.rank = rank, .size = size(), .name = "world", .store = store, .config = config};
        options.config.host = "host" + std::to_string(rank / ranks_per_host);
        results[static_cast<std::size_t>(rank)] = run_rank(options, rank_main);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

 private:
  [[nodiscard]] Result<void> run_rank(GroupOptions& options,
                                      const std::function<Result<void>(Group&)>& rank_main) const {
    options.transport = std::make_shared<WireTransport>(wire, options.rank, size());
    if (connect) {
      if (auto connected = connect(options); !connected) return connected;
    }
    const auto group = Group::create(options);
    return group ? rank_main(**group) : Result<void>(tl::unexpected(group.error()));
  }
};

}  // namespace tandem::test
