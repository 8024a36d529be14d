#pragma once

#include <memory>
#include <tandem/bootstrap/transport.hpp>

#include "transport/cpu/mpi_thread.hpp"

namespace tandem::transport {

/// Exchanges of ranks on CPUs by MPI. What is sent is copied when the stream comes to it, and what has come
/// when it is awaited, so that a wait that gives up leaves nothing to MPI.
class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(std::shared_ptr<MpiThread> mpi) : mpi_(std::move(mpi)) {}

  [[nodiscard]] std::string name() const override { return mpi_->version(); }
  [[nodiscard]] int rank() const override { return mpi_->rank(); }
  [[nodiscard]] int size() const override { return mpi_->size(); }
  [[nodiscard]] Result<std::shared_ptr<Pending>> start(const Exchange& exchange, Stream& stream) override;
  [[nodiscard]] Result<void> await(const std::shared_ptr<Pending>& exchange,
                                   std::chrono::milliseconds timeout,
                                   const std::shared_ptr<const Watch>& watch, Stream& stream) override;

 private:
  std::shared_ptr<MpiThread> mpi_;
};

}  // namespace tandem::transport
