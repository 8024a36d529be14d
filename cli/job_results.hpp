#pragma once

#include <functional>
#include <span>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/launcher.hpp>
#include <vector>

#include "harness/problem.hpp"
#include "shared_bytes.hpp"

namespace tandem::cli {

/// What the ranks of a job make together: whole tensors, of which each rank hands in a part.
struct JobResults {
  struct Whole {
    Dims sizes;
    DType dtype = DType::kF32;
  };
  int ranks = 1;
  std::vector<Whole> tensors;
  /// The part of tensor i that `rank` hands in; of no elements: none.
  std::function<harness::Window(int i, int rank)> part_of;
};

/// The whole results in the launcher's memory. Ranks write their parts there where all are on its host. Ranks
/// on several hosts send them through the store.
class GatheredResults {
 public:
  /// In the launcher. Throws exit 2 with the bytes asked for and available when there is no room.
  explicit GatheredResults(JobResults results);

  /// Before the ranks begin: tells them where the memory is.
  void publish(Store& store) const;
  /// Once all have ended well: takes what they have sent.
  void collect(Store& store) const;
  [[nodiscard]] const std::vector<TensorView>& tensors() const { return tensors_; }

 private:
  JobResults results_;
  SharedBytes memory_;
  std::vector<TensorView> tensors_;
};

/// In a rank: hands in its part of each tensor, in host memory and of any type.
void hand_in(const std::vector<TensorView>& parts, const JobResults& results, const RankContext& context);

}  // namespace tandem::cli
