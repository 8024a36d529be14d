#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tandem/base/error.hpp>

namespace tandem {

class Stream;

/// Carries bytes between ranks that share no memory, because they run on different hosts. A group whose ranks
/// lie on several hosts needs one (GroupOptions::transport). Derive from it to use a network library that
/// tandem does not know.
///
/// Ranks are those of the whole job. Messages from one rank to another on one channel arrive in the order in
/// which they were sent. A rank may start any number of exchanges before it waits for the first.
class Transport {
 public:
  virtual ~Transport() = default;

  /// What goes out and what comes in. Either may be missing: a negative rank, or no bytes.
  struct Exchange {
    int to = -1;
    std::span<const std::byte> sent = {};
    int from = -1;
    std::span<std::byte> received = {};
    std::uint64_t channel = 0;  ///< one a group
    /// A product waits for it that has all of a GPU but num_multiprocessors(). The same on both ends.
    bool beside_product = false;
    /// Both ends of a message must say the same.
    std::uint64_t fingerprint = 0;
  };
  /// An exchange that has been started. It must outlive the wait that was enqueued for it.
  class Pending {
   public:
    virtual ~Pending() = default;
  };
  /// The group for which a wait is made.
  struct Watch {
    std::function<Result<void>()> status;      ///< the wait gives up as soon as this is an error
    std::function<void(const Error&)> report;  ///< called with the error of a wait that has given up
  };

  /// "Open MPI v4.1.4".
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// How many multiprocessors of a GPU the kernels of an exchange beside a product need at most; 0: it has no
  /// kernels. A product that waits for what they bring leaves so many free.
  [[nodiscard]] virtual int num_multiprocessors() const { return 0; }
  /// Enqueues the start of an exchange. The stream goes on at once. The bytes must stay as they are until the
  /// wait for it is done.
  /// Errors:  kUnsupported for a stream of a device that this transport does not serve.
  [[nodiscard]] virtual Result<std::shared_ptr<Pending>> start(const Exchange& exchange, Stream& stream) = 0;
  /// Later work on `stream` comes behind the exchange: `sent` may be overwritten, and `received` is there.
  /// Errors:  of the stream: kTimeout that names both ranks and the bytes, kPeerLost, kMismatch where the
  ///          other rank sends something else, those of `watch`.
  [[nodiscard]] virtual Result<void> await(const std::shared_ptr<Pending>& exchange,
                                           std::chrono::milliseconds timeout,
                                           const std::shared_ptr<const Watch>& watch, Stream& stream) = 0;
};

}  // namespace tandem
