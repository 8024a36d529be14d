#include "transport/cpu/mpi_store.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <thread>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::transport {
namespace {

enum class Op : std::uint32_t { kSet, kGet, kAdd, kErase };

/// Key and value follow.
struct RequestHead {
  std::uint32_t op = 0;
  std::uint32_t id = 0;
  std::uint64_t key_bytes = 0;
  std::int64_t delta = 0;
};

/// A value or the text of an error follows.
struct ReplyHead {
  static constexpr std::int32_t kFound = -1;
  std::uint32_t id = 0;
  std::int32_t error = kFound;  ///< else an ErrorCode
  std::int64_t number = 0;
};

template <class Head>
std::vector<std::byte> message_of(const Head& head, std::string_view key, std::span<const std::byte> value) {
  std::vector<std::byte> bytes(sizeof(head) + key.size() + value.size());
  std::memcpy(bytes.data(), &head, sizeof(head));
  std::copy_n(reinterpret_cast<const std::byte*>(key.data()), key.size(), bytes.begin() + sizeof(head));
  std::copy(value.begin(), value.end(), bytes.end() - static_cast<std::ptrdiff_t>(value.size()));
  return bytes;
}

}  // namespace

struct MpiStore::Reply {
  std::int32_t error = ReplyHead::kFound;
  std::int64_t number = 0;
  Bytes value;
};

struct MpiStore::Shared {
  std::shared_ptr<Store> kept = make_in_process_store();  ///< of rank 0
  std::mutex mutex;
  std::condition_variable has_come;
  std::uint32_t next_id = 0;
  std::optional<Error> lost = {};  ///< rank 0 has not answered once: nobody waits for it again
  std::map<std::uint32_t, std::optional<Reply>> replies;

  /// What rank 0 does.
  [[nodiscard]] Reply answer(Op op, std::string_view key, std::span<const std::byte> value,
                             std::int64_t delta) const;
  void take_reply(std::span<const std::byte> bytes);
};

MpiStore::Reply MpiStore::Shared::answer(Op op, std::string_view key, std::span<const std::byte> value,
                                         std::int64_t delta) const {
  Reply reply;
  const auto note = [&](const Error& error) {
    reply.error = static_cast<std::int32_t>(error.code());
    const auto text = std::as_bytes(std::span(error.text()));
    reply.value.assign(text.begin(), text.end());
  };
  switch (op) {
    case Op::kSet:
      if (auto done = kept->set(key, value); !done) note(done.error());
      break;
    case Op::kGet:
      if (auto found = kept->get(key, Deadline::after(std::chrono::nanoseconds(0))))
        reply.value = *std::move(found);
      else
        note(found.error());
      break;
    case Op::kAdd:
      if (auto sum = kept->add(key, delta))
        reply.number = *sum;
      else
        note(sum.error());
      break;
    case Op::kErase:
      if (auto done = kept->erase(key); !done) note(done.error());
      break;
  }
  return reply;
}

void MpiStore::Shared::take_reply(std::span<const std::byte> bytes) {
  ReplyHead head;
  if (bytes.size() < sizeof(head)) return;
  std::memcpy(&head, bytes.data(), sizeof(head));
  const auto value = bytes.subspan(sizeof(head));
  {
    const std::lock_guard lock(mutex);
    const auto awaited = replies.find(head.id);
    if (awaited == replies.end()) return;  // nobody waits any more
    awaited->second = Reply{head.error, head.number, {value.begin(), value.end()}};
  }
  has_come.notify_all();
}

MpiStore::MpiStore(std::shared_ptr<MpiThread> mpi, std::chrono::milliseconds patience)
    : shared_(std::make_shared<Shared>()), patience_(patience), mpi_(std::move(mpi)) {
  if (mpi_->rank() != 0) {
    mpi_->serve(Tag::kStoreReply,
                [shared = shared_](int, std::vector<std::byte> bytes) { shared->take_reply(bytes); });
    return;
  }
  mpi_->serve(Tag::kStoreRequest, [shared = shared_, mpi = mpi_.get()](int source,
                                                                       std::vector<std::byte> bytes) {
    RequestHead head;
    if (bytes.size() < sizeof(head)) return;
    std::memcpy(&head, bytes.data(), sizeof(head));
    if (head.key_bytes > bytes.size() - sizeof(head)) return;
    const std::string_view key(reinterpret_cast<const char*>(bytes.data()) + sizeof(head), head.key_bytes);
    const Reply reply = shared->answer(static_cast<Op>(head.op), key,
                                       std::span(bytes).subspan(sizeof(head) + head.key_bytes), head.delta);
    const ReplyHead back{head.id, reply.error, reply.number};
    mpi->post(std::make_shared<Message>(Message{.peer = source,
                                                .tag = static_cast<int>(Tag::kStoreReply),
                                                .is_sent = true,
                                                .bytes = message_of(back, {}, reply.value)}));
  });
}

Result<MpiStore::Reply> MpiStore::ask(std::uint32_t op, std::string_view key,
                                      std::span<const std::byte> value, std::int64_t delta) {
  if (mpi_->rank() == 0) return shared_->answer(static_cast<Op>(op), key, value, delta);
  RequestHead head{.op = op, .key_bytes = key.size(), .delta = delta};
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->lost) return tl::unexpected(*shared_->lost);
    head.id = shared_->next_id++;
    shared_->replies[head.id] = std::nullopt;
  }
  mpi_->post(std::make_shared<Message>(Message{.peer = 0,
                                               .tag = static_cast<int>(Tag::kStoreRequest),
                                               .is_sent = true,
                                               .bytes = message_of(head, key, value)}));
  std::unique_lock lock(shared_->mutex);
  const bool has_come =
      shared_->has_come.wait_for(lock, patience_, [&] { return shared_->replies[head.id].has_value(); });
  const std::optional<Reply> reply = std::move(shared_->replies[head.id]);
  shared_->replies.erase(head.id);
  if (!has_come) {
    shared_->lost = Error(ErrorCode::kPeerLost,
                          fmt::format("store: rank 0, which keeps it, has not answered for {} ms (key '{}')",
                                      patience_.count(), key));
    return tl::unexpected(*shared_->lost);
  }
  return *reply;
}

namespace {

/// Of a reply that is an error.
Error error_of(std::int32_t code, const Store::Bytes& text) {
  const auto known = std::clamp(code, 0, static_cast<std::int32_t>(ErrorCode::kInternal));
  return Error(static_cast<ErrorCode>(known),
               std::string(reinterpret_cast<const char*>(text.data()), text.size()));
}

}  // namespace

Result<void> MpiStore::set(std::string_view key, std::span<const std::byte> value) {
  TANDEM_ASSIGN(const Reply reply, ask(static_cast<std::uint32_t>(Op::kSet), key, value, 0));
  if (reply.error != ReplyHead::kFound) return tl::unexpected(error_of(reply.error, reply.value));
  return {};
}

Result<Store::Bytes> MpiStore::get(std::string_view key, Deadline deadline) {
  auto nap = std::chrono::milliseconds(1);
  constexpr auto kLongestNap = std::chrono::milliseconds(20);
  while (true) {
    TANDEM_ASSIGN(Reply reply, ask(static_cast<std::uint32_t>(Op::kGet), key, {}, 0));
    if (reply.error == ReplyHead::kFound) return std::move(reply.value);
    Error error = error_of(reply.error, reply.value);
    if (error.code() != ErrorCode::kTimeout || deadline.expired()) return tl::unexpected(std::move(error));
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(nap, deadline.remaining()));
    nap = std::min(2 * nap, kLongestNap);
  }
}

Result<std::int64_t> MpiStore::add(std::string_view key, std::int64_t delta) {
  TANDEM_ASSIGN(const Reply reply, ask(static_cast<std::uint32_t>(Op::kAdd), key, {}, delta));
  if (reply.error != ReplyHead::kFound) return tl::unexpected(error_of(reply.error, reply.value));
  return reply.number;
}

Result<void> MpiStore::erase(std::string_view key) {
  TANDEM_ASSIGN(const Reply reply, ask(static_cast<std::uint32_t>(Op::kErase), key, {}, 0));
  if (reply.error != ReplyHead::kFound) return tl::unexpected(error_of(reply.error, reply.value));
  return {};
}

}  // namespace tandem::transport
