#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/symm/kernel_control.hpp>

#include "bootstrap/control_memory.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "device/cuda/internal_stream.hpp"

namespace tandem::symm::cuda {

/// Barriers of a group's streams that need no multiprocessor: the front end of the GPU writes and awaits
/// words, which lie in the control memory of the group. A kernel that fills the GPU does not hold them up.
///
/// | word               | writer                        | reader                    |
/// |--------------------|-------------------------------|---------------------------|
/// | stream_puts[t][s]  | rank s: 1; its owner: 0 again | its owner's stream        |
/// | stream_waits       | the own stream                | the own host              |
/// | stream_wait_ended  | the own stream: 1; the host: 0| the own host              |
///
/// A rank puts, waits until all others have, and resets what it has taken. Barriers take the turns 0 and 1
/// alternately. So a rank that puts in a turn has passed the barrier of the other turn. Every rank has put
/// there behind its reset of this turn: no put is lost. Each op has an even number of barriers, so that
/// replays of a recording keep the turns.
///
/// The front end knows no deadline. A host that waits for a stream looks about every millisecond: a wait that
/// has lasted too long, or whose group or peer is gone, is reported, and ended by a store to its word.
class StreamBarriers {
 public:
  /// The group's, for its streams on this GPU. Notes how the rank's GPU can wait.
  [[nodiscard]] static Result<std::shared_ptr<StreamBarriers>> of(Group& group, Device& device);
  StreamBarriers(std::shared_ptr<bootstrap::ControlMemory> memory, int rank, int world_size,
                 std::chrono::milliseconds limit, std::uintptr_t device_offset, int device)
      : memory_(std::move(memory)),
        rank_(rank),
        world_size_(world_size),
        limit_(limit),
        device_offset_(device_offset),
        device_(device) {}

  /// Whether every rank has a GPU to itself, whose driver takes such waits. The same on every rank, once they
  /// have met.
  [[nodiscard]] bool can_run() const;
  [[nodiscard]] Result<void> enqueue(tandem::cuda::CudaStream& stream, int turn) const;
  /// Ends a wait that has lasted too long, or any where `is_over`, and says why.
  [[nodiscard]] std::optional<KernelFault> look(bool is_over);

 private:
  [[nodiscard]] bool is_taken_by_driver(tandem::cuda::InternalStream& internal) const;
  /// As the GPU sees it.
  template <class Word>
  [[nodiscard]] std::uintptr_t on_device(const Word& word) const {
    return reinterpret_cast<std::uintptr_t>(&word) + device_offset_;
  }

  std::shared_ptr<bootstrap::ControlMemory> memory_;
  int rank_;
  int world_size_;
  std::chrono::milliseconds limit_;
  std::uintptr_t device_offset_;  ///< from an address of the host to that of the GPU
  int device_;
  std::mutex mutex_;
  std::uint32_t seen_ = 0;  ///< the wait that was under way at the last look
  std::chrono::steady_clock::time_point since_;
};

}  // namespace tandem::symm::cuda
