#include "transport/cpu/mpi_transport.hpp"

#include <algorithm>
#include <cstring>
#include <tandem/cpu/launch.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "transport/message_head.hpp"

namespace tandem::transport {
namespace {

/// A message of a channel; channels that share a tag are told apart by nothing.
int tag_of(std::uint64_t channel) {
  constexpr std::uint64_t kTags = 32'000;  // every library has as many
  return static_cast<int>(Tag::kFirstChannel) + static_cast<int>(channel % kTags);
}

class MpiPending final : public Transport::Pending {
 public:
  MpiPending(const Transport::Exchange& exchange, int rank) : exchange_(exchange), rank_(rank) {}

  /// On the stream.
  void start(MpiThread& mpi) {
    if (exchange_.to >= 0 && !exchange_.sent.empty()) {
      sent_ = std::make_shared<Message>(
          Message{.peer = exchange_.to, .tag = tag_of(exchange_.channel), .is_sent = true});
      const MessageHead head = head_of_sent(exchange_);
      sent_->bytes.resize(sizeof(head) + exchange_.sent.size());
      std::memcpy(sent_->bytes.data(), &head, sizeof(head));
      std::memcpy(sent_->bytes.data() + sizeof(head), exchange_.sent.data(), exchange_.sent.size());
      mpi.post(sent_);
    }
    if (exchange_.from >= 0 && !exchange_.received.empty()) {
      received_ = std::make_shared<Message>(
          Message{.peer = exchange_.from, .tag = tag_of(exchange_.channel), .is_sent = false});
      received_->bytes.resize(sizeof(MessageHead) + exchange_.received.size());
      mpi.post(received_);
    }
  }

  /// On the stream.
  Result<void> finish(MpiThread& mpi, std::chrono::milliseconds timeout, const Transport::Watch& watch) {
    const auto begun = Deadline::Clock::now();
    const Deadline deadline = Deadline::after(timeout);
    for (const std::shared_ptr<Message>& message : {received_, sent_}) {
      if (message == nullptr) continue;
      const auto done = mpi.wait(*message, deadline, watch.status);
      if (done) continue;
      const Error error = why(*message, done.error(), begun);
      watch.report(error);
      return tl::unexpected(error);
    }
    if (received_ == nullptr) return {};
    MessageHead came;
    std::memcpy(&came, received_->bytes.data(), sizeof(came));
    if (auto same = check_head(came, exchange_, rank_); !same) {
      watch.report(same.error());
      return same;
    }
    std::memcpy(exchange_.received.data(), received_->bytes.data() + sizeof(MessageHead),
                exchange_.received.size());
    return {};
  }

 private:
  [[nodiscard]] Error why(const Message& message, const Error& error,
                          Deadline::Clock::time_point begun) const {
    const std::string what = message.is_sent ? sent_in_words(exchange_) : awaited_in_words(exchange_);
    if (error.code() == ErrorCode::kTimeout) return gave_up(rank_, what, Deadline::Clock::now() - begun);
    // MPI's own: it has lost the peer. Others are the group's.
    if (error.code() == ErrorCode::kDriver)
      return Error(ErrorCode::kPeerLost,
                   fmt::format("rank {} {} on another host: {}", rank_, what, error.text()));
    return error;
  }

  Transport::Exchange exchange_;
  int rank_;
  std::shared_ptr<Message> sent_;
  std::shared_ptr<Message> received_;
};

}  // namespace

Result<std::shared_ptr<Transport::Pending>> MpiTransport::start(const Exchange& exchange, Stream& stream) {
  auto pending = std::make_shared<MpiPending>(exchange, rank());
  TANDEM_TRY(cpu::launch(stream, cpu::Task([pending, mpi = mpi_]() -> Result<void> {
                           pending->start(*mpi);
                           return {};
                         })));
  return std::shared_ptr<Pending>(std::move(pending));
}

Result<void> MpiTransport::await(const std::shared_ptr<Pending>& exchange, std::chrono::milliseconds timeout,
                                 const std::shared_ptr<const Watch>& watch, Stream& stream) {
  return cpu::launch(stream, cpu::Task([pending = std::static_pointer_cast<MpiPending>(exchange), mpi = mpi_,
                                        timeout, watch] { return pending->finish(*mpi, timeout, *watch); }));
}

}  // namespace tandem::transport
