#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tandem/bootstrap/store.hpp>

#include "transport/cpu/mpi_thread.hpp"

namespace tandem::transport {

/// A store that rank 0 keeps and serves through messages. A rank that waits for a key asks again and again.
/// Errors: kPeerLost if rank 0 does not answer for `patience`.
class MpiStore final : public Store {
 public:
  MpiStore(std::shared_ptr<MpiThread> mpi, std::chrono::milliseconds patience);

  [[nodiscard]] Result<void> set(std::string_view key, std::span<const std::byte> value) override;
  [[nodiscard]] Result<Bytes> get(std::string_view key, Deadline deadline) override;
  [[nodiscard]] Result<std::int64_t> add(std::string_view key, std::int64_t delta) override;
  [[nodiscard]] Result<void> erase(std::string_view key) override;

 private:
  struct Reply;
  struct Shared;
  [[nodiscard]] Result<Reply> ask(std::uint32_t op, std::string_view key, std::span<const std::byte> value,
                                  std::int64_t delta);

  std::shared_ptr<Shared> shared_;  // with the thread's callbacks
  std::chrono::milliseconds patience_;
  std::shared_ptr<MpiThread> mpi_;
};

}  // namespace tandem::transport
