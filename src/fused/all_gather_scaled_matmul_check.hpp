#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/all_gather_scaled_matmul.hpp>

#include "fused/gather_problem.hpp"

namespace tandem::fused {

/// A checked fused_all_gather_scaled_matmul call as what it comes down to.
struct ScaledGatherProblem {
  /// A tensor beside a.
  struct Beside {
    DType dtype = DType::kF32;
    std::int64_t last = 0;  ///< size of the last dim, on this rank
    friend bool operator==(const Beside&, const Beside&) = default;
  };

  GatherProblem gather;  ///< dtype is a's
  // Equal on all ranks; but not `last` where the last dim is gathered.
  ScaleMode mode = ScaleMode::kNone;
  int num_beside = 0;
  std::array<Beside, kMaxBeside> beside = {};

  /// Bytes of the largest rank's part of all that travels beside a.
  [[nodiscard]] std::int64_t beside_bytes() const;

  friend bool operator==(const ScaledGatherProblem&, const ScaledGatherProblem&) = default;
};
[[nodiscard]] std::size_t hash_of(const ScaledGatherProblem& problem);
/// " scale tensorwise beside [bf16 4, i64 1]": what the ranks have in common besides `gather`.
[[nodiscard]] std::string agreed_text(const ScaledGatherProblem& problem);

/// Everything that can be wrong with the arguments on this rank, before anything is enqueued.
[[nodiscard]] Result<ScaledGatherProblem> check(const AllGatherScaledMatmulArgs& args, const Group& group,
                                                const Stream& stream);

}  // namespace tandem::fused
