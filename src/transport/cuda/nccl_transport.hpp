#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <tandem/bootstrap/transport.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/event.hpp>
#include <tandem/device/stream.hpp>
#include <vector>

#include "device/cuda/stream_watch.hpp"
#include "transport/cuda/nccl_communicator.hpp"

namespace tandem::transport::cuda {

/// Of one rank. The kernels of the second one have few blocks: for exchanges beside a product.
struct Communicators {
  std::shared_ptr<NcclCommunicator> usual;
  std::shared_ptr<NcclCommunicator> beside_product;

  [[nodiscard]] NcclCommunicator& of(const Transport::Exchange& exchange) const {
    return exchange.beside_product ? *beside_product : *usual;
  }
  /// Ok, or what either has met.
  [[nodiscard]] Result<void> state() const {
    auto met = usual->state();
    return met ? beside_product->state() : met;
  }
  void abort() const {
    usual->abort();
    beside_product->abort();
  }
};

/// Exchanges of ranks on GPUs, each a group of ncclSend and ncclRecv, on a stream of the transport's.
/// A head travels in front of the rows, from and to memory of the host, and is compared there.
class NcclTransport final : public Transport {
 public:
  struct Identity {
    int rank = 0;
    int size = 1;
    int most_blocks = 0;  ///< of kernels beside a product
  };
  NcclTransport(const NcclApi& api, Communicators communicators, Identity self, int gpu,
                std::unique_ptr<Stream> stream, Device& device);
  /// Waits for what is enqueued, and ends the communicators with their peers.
  ~NcclTransport() override;

  [[nodiscard]] std::string name() const override { return "NCCL " + api_.report.version; }
  [[nodiscard]] int rank() const override { return self_.rank; }
  [[nodiscard]] int size() const override { return self_.size; }
  [[nodiscard]] int num_multiprocessors() const override { return self_.most_blocks; }
  [[nodiscard]] Result<std::shared_ptr<Pending>> start(const Exchange& exchange, Stream& stream) override;
  [[nodiscard]] Result<void> await(const std::shared_ptr<Pending>& exchange,
                                   std::chrono::milliseconds timeout,
                                   const std::shared_ptr<const Watch>& watch, Stream& stream) override;

 private:
  class HeadMemory;
  class NcclPending;
  class ExchangeWatch;

  [[nodiscard]] Result<std::shared_ptr<NcclPending>> take_pending(const Exchange& exchange);
  [[nodiscard]] std::shared_ptr<ExchangeWatch> watch_for(const std::shared_ptr<const Watch>& watch);
  [[nodiscard]] Result<void> enqueue(NcclPending& pending);

  const NcclApi& api_;
  Communicators communicators_;
  Identity self_;
  int gpu_;
  Device& device_;
  std::mutex mutex_;
  std::unique_ptr<Stream> stream_;
  /// Of all exchanges so far; those that nobody else holds are used again.
  std::vector<std::shared_ptr<NcclPending>> pending_;
  std::vector<std::weak_ptr<ExchangeWatch>> watches_;
};

}  // namespace tandem::transport::cuda
