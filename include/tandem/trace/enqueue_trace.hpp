#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::trace {

/// The caller's stream, or the side stream ("backend stream").
enum class StreamRole : std::uint8_t { kCurrent, kSide };

/// A kind of step of a schedule.
enum class StepKind : std::uint8_t {
  kBarrier,     ///< cur:B0: barrier of the ranks on `channel`, counted from the schedule's first channel
  kJoin,        ///< cur>bk: the other stream waits for `stream`
  kPublish,     ///< cur:mv: copies the own shard into the own symmetric buffer
  kConsumeOwn,  ///< cur:use1(own): uses the caller's own shard
  kGet,         ///< bk:get2 or bk:get2.P0: copies from rank `peer` (out of its slot `slot`, if >= 0)
                ///< bk:get*.P0 (peer < 0): lets the link's time pass behind the word of each other rank
  kConsume,     ///< bk:use2: uses the chunk of rank `peer`
  kKeepOwn,     ///< cur:own->out1: copies the own shard into the gathered output
  kProduce,     ///< bk:make2->P0 or cur:make1->out (slot < 0): makes the chunk for rank `peer`
                ///< cur:make->P0 (peer < 0): makes all ranks' chunks, and tells of each
  kNap,         ///< cur:nap: a short sleep that lets the side stream start first
  kPut,         ///< bk:put2.P0: copies chunk `slot` to rank `peer`, and its word behind it
  kTell,        ///< cur:tell2.P0: writes the word of chunk `slot` for rank `peer`, which may get it
  kAwait,       ///< bk:await2.P0: waits for the word of chunk `slot` from rank `peer`
  kGiveSum,  ///< bk:sum->2.P0: copies the sum of the own chunk `slot` to rank `peer`, and its word behind it
  kTakeSum,  ///< bk:sum2.P0: takes the sum of chunk `slot` from rank `peer`, behind its word or a barrier
  kCheck,    ///< bk:check: looks for NaN in a tensor of the call
};

/// One step, as it was enqueued. A member that does not apply is -1.
struct Step {
  StepKind kind;
  StreamRole stream = StreamRole::kCurrent;
  int peer = -1;
  int channel = -1;
  int slot = -1;
};

/// The step in the notation of docs/design/schedules.md: "bk:make2->P0".
[[nodiscard]] std::string to_string(const Step& step);

/// The steps that one op enqueued, in order. Pass one to an op to receive them.
class EnqueueTrace {
 public:
  /// Starts the trace of an op, and drops the steps of the one before.
  void begin(std::string_view op) {
    op_ = op;
    steps_.clear();
  }
  void add(const Step& step) { steps_.push_back(step); }
  void clear() { begin({}); }
  /// The op, with [M,N,K] of the whole product: "all_gather_matmul [4096,3584,8192] bf16 pipelined".
  [[nodiscard]] const std::string& op() const { return op_; }
  [[nodiscard]] std::span<const Step> steps() const { return steps_; }
  /// All steps, separated by single spaces.
  [[nodiscard]] std::string to_string() const;

 private:
  std::string op_;
  std::vector<Step> steps_;
};

}  // namespace tandem::trace
