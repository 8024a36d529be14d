#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::trace {

/// The caller's stream or the library's side stream ("backend stream").
enum class StreamRole : std::uint8_t { kCurrent, kSide };

/// What a schedule enqueues.
enum class StepKind : std::uint8_t {
  kBarrier,     ///< cur:B0 — cross-rank barrier on `channel` (relative to the schedule's first channel)
  kJoin,        ///< cur>bk — the other stream waits for `stream`
  kPublish,     ///< cur:mv — own shard copied into the own symmetric buffer
  kConsumeOwn,  ///< cur:use1(own) — consumer on the caller's own shard
  kGet,         ///< bk:get2 or bk:get2.P0 — copy from rank `peer` (out of its slot `slot`, if >= 0)
  kConsume,     ///< bk:use2 — consumer on rank `peer`'s chunk
  kKeepOwn,     ///< cur:own->out1 — own shard copied into the gathered output
  kProduce,     ///< bk:make2->P0 or cur:make1->out (slot < 0) — producer for destination `peer`
  kNap,         ///< cur:nap — the nudge that lets the side stream start first
};

struct Step {
  StepKind kind;
  StreamRole stream = StreamRole::kCurrent;
  int peer = -1;
  int channel = -1;
  int slot = -1;
};

/// "bk:make2->P0"; the notation of docs/design/schedules.md.
[[nodiscard]] std::string to_string(const Step& step);

/// What one op put on its streams, in the order of enqueueing. Pass one to an op to see it.
class EnqueueTrace {
 public:
  /// A new op: forgets the steps of the one before.
  void begin(std::string_view op) {
    op_ = op;
    steps_.clear();
  }
  void add(const Step& step) { steps_.push_back(step); }
  void clear() { begin({}); }
  /// "all_gather_matmul [4096,3584,8192] bf16 pipelined": [M,N,K] of the whole product.
  [[nodiscard]] const std::string& op() const { return op_; }
  [[nodiscard]] std::span<const Step> steps() const { return steps_; }
  /// All steps, joined by single spaces.
  [[nodiscard]] std::string to_string() const;

 private:
  std::string op_;
  std::vector<Step> steps_;
};

}  // namespace tandem::trace
