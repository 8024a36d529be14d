#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "conformance/fused_harness.hpp"

namespace tandem::test {

// Every op once, by each algorithm: for tests of how programs end.

inline constexpr std::int64_t kSizeOfCalls = 48;  ///< of every dim of all ranks

/// What the calls work on; everything of the library's own memory.
struct TensorsOfCalls {
  Tensor a, shard, narrow_a, b, narrow_b, whole, part, scale, symmetric;
  std::shared_ptr<symm::Handle> handle = {};
  std::unique_ptr<Event> event = {};
};
[[nodiscard]] Result<TensorsOfCalls> make_tensors_of_calls(RankContextOfTest& rank);

/// What a program may queue.
struct CallOfTest {
  std::string name;
  std::function<Result<void>(RankContextOfTest& rank, TensorsOfCalls& t)> enqueue;
  bool is_for_gpus = true;
};
[[nodiscard]] std::vector<CallOfTest> every_call();

/// A gather of `a`, which has as many rows on each rank.
[[nodiscard]] Result<void> gather_of_calls(RankContextOfTest& rank, const TensorsOfCalls& t,
                                           const TensorView& a, Algorithm algorithm,
                                           const std::shared_ptr<symm::Handle>& handle = nullptr);

}  // namespace tandem::test
