#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/support.hpp>
#include <tandem/program/host/fusion.hpp>

namespace tandem::program::host {

/// What the first generation of the rule lacks. All off, the program is the one that rule emits.
struct LowerOptions {
  /// Workers wait for the caller's stream, in a loop before the main one: they may read what it writes.
  bool workers_wait = false;
  /// The caller's stream waits for the workers in a loop behind the main one, not within each iteration.
  bool joining_loop = false;
  /// The shard of a is selected once, and is no output of the program.
  bool single_select = false;
  /// Shards travel from rank to rank and each is multiplied as it comes: a ring instead of an Allgather.
  bool point_to_point = false;
  /// Of point_to_point: rank r takes the shards r, r+1, ... from their owners, instead of r, r-1, ... from
  /// its neighbour.
  bool offset_by_rank = false;

  /// Gets the printed program where `device` is 0; nothing where it is empty.
  std::function<void(std::string_view)> dump = {};
  int device = 0;
};

/// An ordered list of what the host does for a distributed matmul: allocate, select, communicate, wait,
/// multiply, on the caller's stream and on numbered ones. Symbolic: sizes, rank and number of streams are
/// bound when it is unrolled. Immutable, free to copy.
class HostProgram {
 public:
  struct Container;
  explicit HostProgram(std::shared_ptr<const Container> container) : container_(std::move(container)) {}

  /// "%HostIrContainer { (T0_g_float[...], ...) -> (T2_g_float[...]) :\n  GetCurrentStream into Stream 0...".
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] const Container& container() const { return *container_; }

 private:
  std::shared_ptr<const Container> container_;
};

/// Whether the rule applies, and if not, why. It does for
///   - matmul(a [S, DIDx(D), m, K], b [K, N]) and linear(a, weight [N, K], bias [N]), with b, bias and out
///     not sharded: a gather;
///   - sum(matmul(a [S, DIDx(D), D, m, k], b [DIDx(D), 1, k, N]), {1}), with DIDx on axis 2 of the sum: a
///     scatter.
/// Axis 0 of a is Serial, axis 0 of out Stream or Serial; all have the same mesh.
[[nodiscard]] Support can_lower(const Fusion& fusion);

/// The host program of a fusion to which the rule applies.
/// Source:  docs/guide/host_program.md
/// Errors:  kInvalidArgument for a fusion that is wrong in itself (shapes, no mesh, meshes that differ, no
///          output) and for options that exclude each other; kUnsupported, with the reason of can_lower(),
///          where the rule does not apply.
[[nodiscard]] Result<HostProgram> lower(const Fusion& fusion, const LowerOptions& options = {});

}  // namespace tandem::program::host
