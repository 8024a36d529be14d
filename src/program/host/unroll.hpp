#pragma once

#include <span>
#include <tandem/base/shape.hpp>

#include "program/host/container.hpp"
#include "program/program.hpp"

namespace tandem::program::host {

/// A host program for one rank, with sizes and a number of streams: a flat program, and who binds its roots.
/// Every root is a matrix, as products take it: rows are all axes but the last. Stream j of the host program
/// is lane 1 + j, and its barriers are on channel 1 + j; the last barrier is on the caller's lane, channel 0.
struct Unrolled {
  struct Input {
    RootId root = kNone;
    Dims matrix;                 ///< a bias is a vector
    bool is_transposed = false;  ///< a linear's weight: stored as [n, k], a matrix [k, n]
  };
  Program program;
  std::vector<Input> inputs;  ///< in the host program's order
  RootId out = kNone;
  Dims out_matrix;
  Dims out_sizes;  ///< on this rank
};

/// Values of the symbols that stand for extents. `inputs`: sizes on one rank, in the program's order.
/// Errors:  kInvalidArgument for another number of inputs or axes, and for sizes that contradict each other,
///          with both.
[[nodiscard]] Result<ScalarValues> bind_extents(const HostProgram::Container& container,
                                                std::span<const Dims> inputs);

/// Errors:  kInvalidArgument for num_streams outside [1, kMaxLanes - 1], a rank outside the mesh, and a host
///          program whose workers do not wait for the caller's stream; kUnsupported for more products than a
///          program can have.
[[nodiscard]] Result<Unrolled> unroll(const HostProgram::Container& container, const ScalarValues& extents,
                                      int rank, int num_streams);

}  // namespace tandem::program::host
