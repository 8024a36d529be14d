#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/format.hpp"
#include "base/make_thread.hpp"
#include "base/system_refusal.hpp"
#include "base/try.hpp"
#include "bootstrap/local_store_service.hpp"

namespace tandem {

using bootstrap::Message;
using bootstrap::MessageHead;
using bootstrap::MessageType;

namespace {

constexpr std::chrono::seconds kGreetingTime{5};
constexpr std::size_t kMaxStrangers = 64;

bool is_own_user(int socket) {
  const auto user = bootstrap::user_of_peer(socket);
  return user && *user == ::geteuid();
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

// ---- the public face ----

LocalStoreServer::LocalStoreServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LocalStoreServer::~LocalStoreServer() {
  if (!impl_->home_.is_here()) keep_forever(std::move(impl_));  // the parent serves on
}

Result<std::unique_ptr<LocalStoreServer>> LocalStoreServer::create() {
  TANDEM_ASSIGN(auto impl, Impl::create());
  return std::unique_ptr<LocalStoreServer>(new LocalStoreServer(std::move(impl)));
}

Result<UniqueFd> LocalStoreServer::connect_pair() {
  return impl_->connect_pair();
}
Result<LocalStoreAddress> LocalStoreServer::listen(int expected_clients) {
  return impl_->listen(expected_clients);
}
std::int64_t LocalStoreServer::num_refused() const {
  return impl_->num_refused();
}
std::shared_ptr<Store> LocalStoreServer::local() const {
  return impl_->local();
}

// ---- called by other threads ----

LocalStoreServer::Impl::Impl(std::shared_ptr<UniqueFd> wake)
    : wake_(std::move(wake)),
      store_(std::make_shared<bootstrap::MemoryStore>(bootstrap::MemoryStore::Reach::kProcesses)) {}

Result<std::unique_ptr<LocalStoreServer::Impl>> LocalStoreServer::Impl::create() {
  auto wake = std::make_shared<UniqueFd>(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake->valid()) return tl::unexpected(system_refusal("store: eventfd failed", errno));
  std::unique_ptr<Impl> impl(new Impl(wake));
  impl->store_->on_set([wake] { ::eventfd_write(wake->get(), 1); });
  TANDEM_ASSIGN(impl->thread_, make_thread("the server of a store", [raw = impl.get()] { raw->run(); }));
  return impl;
}

LocalStoreServer::Impl::~Impl() {
  if (!thread_.joinable()) return;  // it could not be made
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  notify();
  thread_.join();
}

void LocalStoreServer::Impl::notify() {
  ::eventfd_write(wake_->get(), 1);
}

Result<UniqueFd> LocalStoreServer::Impl::connect_pair() {
  TANDEM_TRY(home_.check("the server of a store"));
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return tl::unexpected(system_refusal("store: socketpair failed", errno));
  }
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  if (::fcntl(ours.get(), F_SETFL, O_NONBLOCK) != 0) {
    return tl::unexpected(system_refusal("store: fcntl failed", errno));
  }
  {
    const std::lock_guard lock(mutex_);
    arrivals_.emplace_back().socket = std::move(ours);
  }
  notify();
  return theirs;
}

Result<LocalStoreAddress> LocalStoreServer::Impl::listen(int expected_clients) {
  TANDEM_TRY(home_.check("the server of a store"));
  if (expected_clients < 1) {
    return failf(ErrorCode::kInvalidArgument, "store: {} expected clients, need at least 1",
                 expected_clients);
  }
  LocalStoreAddress address;
  {
    const std::lock_guard lock(mutex_);
    if (listener_)
      return failf(ErrorCode::kInvalidArgument, "store: already listening at '{}'", listener_->path());
    TANDEM_ASSIGN(token_, bootstrap::make_token());
    TANDEM_ASSIGN(auto listener, bootstrap::Listener::create());
    listener_.emplace(std::move(listener));
    num_expected_ = expected_clients;
    address = {listener_->path(), token_};
  }
  notify();
  return address;
}

// ---- the serving thread ----

void LocalStoreServer::Impl::run() {
  std::vector<pollfd> polled;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_) return;
      connections_.splice(connections_.end(), arrivals_);
    }
    collect_polled(polled);
    ::poll(polled.data(), polled.size(), poll_timeout_ms());  // EINTR and all else: look at what there is
    eventfd_t count = 0;
    ::eventfd_read(wake_->get(), &count);
    // polled: the wake-up, the listener (or -1), then the connections in their order.
    std::size_t place = 2;
    for (Connection& connection : connections_) {
      if (polled[place++].revents != 0) read(connection);
    }
    if (polled[1].revents != 0) accept_waiting();
    for (Connection& connection : connections_) {
      answer_pending(connection);
      if (!connection.has_greeted && connection.greet_until.expired()) close_as_stranger(connection);
    }
    remove_closed();
  }
}

void LocalStoreServer::Impl::collect_polled(std::vector<pollfd>& polled) {
  polled.assign(1, {wake_->get(), POLLIN, 0});
  {
    const std::lock_guard lock(mutex_);
    polled.push_back({listener_ ? listener_->socket() : -1, POLLIN, 0});
  }
  for (const Connection& connection : connections_) polled.push_back({connection.socket.get(), POLLIN, 0});
}

int LocalStoreServer::Impl::poll_timeout_ms() const {
  Deadline next = Deadline::never();
  for (const Connection& connection : connections_) {
    if (connection.pending) next = Deadline::earlier(next, connection.pending_until);
    if (!connection.has_greeted) next = Deadline::earlier(next, connection.greet_until);
  }
  constexpr std::chrono::milliseconds kLongest{3'600'000};
  return static_cast<int>(
      std::min(kLongest, std::chrono::ceil<std::chrono::milliseconds>(next.remaining())).count());
}

void LocalStoreServer::Impl::accept_waiting() {
  const std::lock_guard lock(mutex_);
  if (!listener_) return;
  // Fewer in one turn than may be silent: each is heard in the next turn, before others take its place.
  for (std::size_t i = 0; i < kMaxStrangers / 2; ++i) {
    UniqueFd socket(::accept4(listener_->socket(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) return;
      // Without a file descriptor or memory left the client stays in the queue. A stranger may hold one; do
      // not burn the processor meanwhile.
      close_longest_silent();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    if (!is_own_user(socket.get())) {
      ++num_refused_;
      continue;
    }
    if (num_strangers() >= kMaxStrangers) close_longest_silent();
    Connection& connection = connections_.emplace_back();
    connection.socket = std::move(socket);
    connection.needs_token = true;
    connection.greet_until = Deadline::after(kGreetingTime);
  }
}

std::size_t LocalStoreServer::Impl::num_strangers() const {
  return static_cast<std::size_t>(std::count_if(connections_.begin(), connections_.end(),
                                                [](const Connection& c) { return c.is_stranger(); }));
}

void LocalStoreServer::Impl::close_longest_silent() {
  const auto longest = std::find_if(connections_.begin(), connections_.end(),
                                    [](const Connection& c) { return c.is_stranger(); });
  if (longest != connections_.end()) close_as_stranger(*longest);  // they stand in the order of their arrival
}

void LocalStoreServer::Impl::close_as_stranger(Connection& connection) {
  if (!connection.is_closed) ++num_refused_;
  connection.is_closed = true;
}

void LocalStoreServer::Impl::remove_closed() {
  connections_.remove_if([](const Connection& connection) { return connection.is_closed; });
}

void LocalStoreServer::Impl::read(Connection& connection) {
  auto message = bootstrap::receive_message(connection.socket.get());
  if (!message) {
    const bool is_end_of_client = connection.has_greeted && message.error().code() != ErrorCode::kParse;
    if (is_end_of_client || !connection.needs_token) {
      connection.is_closed = true;
    } else {
      close_as_stranger(connection);
    }
    return;
  }
  if (*message) serve(connection, std::move(**message));
}

void LocalStoreServer::Impl::greet(Connection& connection, const Message& hello) {
  if (hello.head.type != MessageType::kHello) return close_as_stranger(connection);
  if (hello.head.number != MessageHead::kProtocolVersion) {
    reply(connection, hello,
          failf(ErrorCode::kMismatch, "store: the client speaks version {}, the server {}", hello.head.number,
                MessageHead::kProtocolVersion));
    return close_as_stranger(connection);
  }
  const std::lock_guard lock(mutex_);
  if (connection.needs_token && !bootstrap::equal_secrets(hello.key, token_)) {
    reply(connection, hello, failf(ErrorCode::kInvalidArgument, "store: the token was refused"));
    return close_as_stranger(connection);
  }
  connection.has_greeted = true;
  // The directory goes before the last client learns that it is welcome.
  if (connection.needs_token && --num_expected_ == 0) listener_.reset();
  reply(connection, hello, std::int64_t{0});
}

void LocalStoreServer::Impl::serve(Connection& connection, Message request) {
  if (!connection.has_greeted) return greet(connection, request);
  if (connection.pending) return close_as_stranger(connection);  // one request at a time
  const auto done = [&](const Result<void>& result) {
    reply(connection, request, result.map([] { return std::int64_t{0}; }));
  };
  switch (request.head.type) {
    case MessageType::kSet:
      return done(store_->set(request.key, request.value));
    case MessageType::kAdd:
      return reply(connection, request, store_->add(request.key, request.head.number));
    case MessageType::kErase:
      return done(store_->erase(request.key));
    case MessageType::kSetFile:
      if (!request.file.valid()) return close_as_stranger(connection);
      return done(store_->set_file(request.key, request.file.get()));
    case MessageType::kGet:
    case MessageType::kGetFile: {
      constexpr std::int64_t kLongestMs = 1'000;
      const auto wait_ms = std::clamp<std::int64_t>(request.head.number, 0, kLongestMs);
      connection.pending_until = Deadline::after(std::chrono::milliseconds(wait_ms));
      connection.pending = std::move(request);
      return answer_pending(connection);
    }
    default:
      return close_as_stranger(connection);
  }
}

void LocalStoreServer::Impl::answer_pending(Connection& connection) {
  if (!connection.pending || connection.is_closed) return;
  if (answer_get(connection, *connection.pending)) {
    connection.pending.reset();
  } else if (connection.pending_until.expired()) {
    reply(connection, *connection.pending, fail(ErrorCode::kTimeout, "store: not there yet"));
    connection.pending.reset();
  }
}

bool LocalStoreServer::Impl::answer_get(Connection& connection, const Message& request) {
  const auto value = store_->find(request.key);
  if (!value) return false;
  const MessageHead head{.id = request.head.id};
  const auto* bytes = std::get_if<Store::Bytes>(&*value);
  const auto* file = std::get_if<bootstrap::MemoryStore::File>(&*value);
  if (request.head.type == MessageType::kGet && bytes != nullptr) {
    if (bytes->size() <= bootstrap::kMaxValueBytes) {
      send(connection, head, *bytes);
    } else {
      reply(connection, request,
            failf(ErrorCode::kInvalidArgument, "store: key '{}' holds {} bytes, at most {} can be sent",
                  request.key, bytes->size(), bootstrap::kMaxValueBytes));
    }
  } else if (request.head.type == MessageType::kGetFile && file != nullptr) {
    send(connection, head, {}, (*file)->get());
  } else {
    reply(connection, request,
          failf(ErrorCode::kInvalidArgument, "store: key '{}' holds a value of another kind (bytes or file)",
                request.key));
  }
  return true;
}

void LocalStoreServer::Impl::reply(Connection& connection, const Message& request,
                                   const Result<std::int64_t>& outcome) {
  if (outcome) return send(connection, {.id = request.head.id, .number = *outcome}, {});
  const std::string& text = outcome.error().text();
  const MessageHead head{.status = static_cast<std::int32_t>(outcome.error().code()), .id = request.head.id};
  send(connection, head, bytes_of(text).first(std::min(text.size(), bootstrap::kMaxValueBytes)));
}

void LocalStoreServer::Impl::send(Connection& connection, MessageHead head, std::span<const std::byte> value,
                                  int file) {
  // A client that does not read its one reply is no client.
  if (!bootstrap::send_message(connection.socket.get(), head, {}, value, file)) connection.is_closed = true;
}

}  // namespace tandem
