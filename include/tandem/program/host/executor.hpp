#pragma once

#include <memory>
#include <span>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/program/host/lower.hpp>

namespace tandem::program::host {

inline constexpr int kDefaultStreams = 4;
inline constexpr int kMostStreams = 15;

/// What one rank enqueues for tensors of these sizes, one line a step, behind one a tensor. Lane 0 is the
/// caller's stream, lane 1 + j number j of the program's. `inputs`: sizes on one rank.
/// Errors:  as Executor::create() where it looks at the program, the sizes and num_streams.
[[nodiscard]] Result<std::string> unrolled_text(const HostProgram& program, std::span<const Dims> inputs,
                                                int rank, int num_streams = kDefaultStreams);

/// A host program for tensors of certain sizes on the ranks of a group: unrolled, with its streams and its
/// memory. Streams are kept between runs. No run blocks the host for another rank or for one of its streams.
class Executor {
 public:
  /// Collective, blocks the host: the ranks exchange the memory that peers read.
  /// `like`:  tensors as run() gets them, in the order of add_input(); only types and sizes count.
  /// Shapes:  on one rank: 1 on the axis that is sharded.
  /// Units:   num_streams workers, at most one for each iteration.
  /// Memory:  of its own: what the program allocates, but for the output, and copies that peers read.
  /// Errors:  kInvalidArgument for num_streams outside [1, kMostStreams], a group that is not the mesh's
  ///          devices, sizes that contradict each other, other types than stated, and a program that was
  ///          lowered without workers_wait; kUnsupported where the pad has too few channels, or S is too
  ///          large; those of symm::rendezvous(), Device::allocate() and gemm::prepare().
  [[nodiscard]] static Result<std::unique_ptr<Executor>> create(const HostProgram& program,
                                                                std::span<const TensorView> like,
                                                                Group& group, Device& device,
                                                                int num_streams = kDefaultStreams);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs the program once, for the caller of `stream`. All ranks of the group do, in the same order.
  /// Shapes:  inputs as in create(), out of out_sizes(); all contiguous.
  /// Memory:  out overlaps none of the inputs.
  /// Order:   behind what is on `stream`; out is ready for later work on it, also where a step was refused.
  /// Errors:  kInvalidArgument for other tensors or another device, before anything is enqueued; those of its
  ///          steps; kMismatch, kTimeout and kPeerLost as all ops of a group.
  [[nodiscard]] Result<void> run(std::span<const TensorView> inputs, const TensorView& out, Stream& stream);

  /// Of the result on one rank: 1 on an axis that is sharded.
  [[nodiscard]] const Dims& out_sizes() const;
  [[nodiscard]] DType out_dtype() const;
  [[nodiscard]] int num_streams() const;
  /// Stream number `idx` of the program's; out of range is a caller's bug (asserted).
  [[nodiscard]] Stream& worker(int idx) const;
  /// What a run enqueues on this rank, one line a step.
  [[nodiscard]] std::string to_string() const;

 private:
  struct Impl;
  explicit Executor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::program::host
