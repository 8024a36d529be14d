#pragma once

#include <memory>
#include <string>
#include <tandem/trace/enqueue_trace.hpp>
#include <vector>

#include "fused/gather/algorithms.hpp"
#include "fused/scatter/algorithms.hpp"
#include "program/runner.hpp"
#include "unit/program_recorder.hpp"

namespace tandem::test {

/// What one rank enqueued: as its program traced it, and as its streams, products and handle saw it.
struct Recorded {
  trace::EnqueueTrace trace;
  std::string calls;
  Result<void> result;
};

inline std::string joined(const CallLog& log) {
  std::string text;
  for (const std::string& call : log) text += fmt::format("{}{}", text.empty() ? "" : " ", call);
  return text;
}

inline trace::EnqueueTrace trace_of(const program::Program& program) {
  trace::EnqueueTrace trace;
  for (const trace::Step& step : program.traced()) trace.add(step);
  return trace;
}

/// Two streams, and memory for a program of one rank: everything but its tensors.
class RecorderRun {
 public:
  RecorderRun(const program::Program& program, Device& device)
      : program_(program),
        device_(device),
        scratch_(static_cast<std::size_t>(program.memory.scratch_bytes)),
        bindings_(program),
        workspace_(std::make_shared<RecorderHandle>(
            program.rank, program.world, program.memory.workspace_bytes, program.base_channel, device)) {
    current_.set_published(workspace_->own(), workspace_->own() + workspace_->buffer_size_bytes());
    bindings_.bind_lane(program::kCurrent, current_);
    bindings_.bind_lane(program::kSide, side_);
    bindings_.bind_scratch(program, scratch_.data(), device.id());
    bindings_.bind_workspace(program, workspace_.get(), device.id());
  }

  [[nodiscard]] program::Bindings& bindings() { return bindings_; }
  [[nodiscard]] const std::shared_ptr<RecorderHandle>& workspace() { return workspace_; }
  [[nodiscard]] const CallLog& log() const { return log_; }
  /// Where a root is bound to.
  [[nodiscard]] TensorView view(program::RootId root) const { return bindings_.view(program::all_of(root)); }
  Recorded run() {
    Recorded recorded{.trace = trace_of(program_), .calls = {}, .result = program::run(program_, bindings_)};
    recorded.calls = joined(log_);
    return recorded;
  }

 private:
  const program::Program& program_;
  Device& device_;
  CallLog log_;
  RecorderStream current_{device_, "cur", log_};
  RecorderStream side_{device_, "bk", log_};
  std::vector<std::byte> scratch_;
  program::Bindings bindings_;
  std::shared_ptr<RecorderHandle> workspace_;
};

inline constexpr std::int64_t kRowsARank = 5;

/// Of 5 rows a rank and 3 columns, times one b of 2.
inline fused::GatherProblem small_gather(int world, bool keep_own = true, bool in_place = false) {
  fused::GatherProblem problem{
      .sizes = {kRowsARank * world, 3}, .world = world, .device = {}, .num_b = 1, .sum_n = 2};
  problem.keeps_gathered = keep_own;
  if (in_place) problem.in_place_offset = 0;
  return problem;
}

/// Of 5 rows a rank and 3 columns, from one product of 4 terms.
inline fused::ScatterProblem small_scatter(int world) {
  return {.sizes = {kRowsARank * world, 3}, .world = world, .device = {}, .num_products = 1, .sum_k = 4};
}

/// The same, pushed in chunks.
inline fused::ScatterProblem small_pushed_scatter(int world, int chunks) {
  fused::ScatterProblem problem = small_scatter(world);
  problem.push_chunks = chunks;
  return problem;
}

/// The same, of which ranks tell each other: one product of all rows, or the sum of two for each part.
inline fused::ScatterProblem small_told_scatter(int world, bool at_once, bool has_link) {
  fused::ScatterProblem problem = small_scatter(world);
  problem.num_products = at_once ? 1 : 2;
  problem.tells = true;
  problem.has_link = has_link;
  return problem;
}

/// The same, whose sums all ranks get: behind barriers in rounds, or by pushes in chunks.
inline fused::ScatterProblem small_all_reduce(int world, int rounds) {
  fused::ScatterProblem problem = small_scatter(world);
  problem.gives_all = true;
  problem.rounds = rounds;
  return problem;
}
inline fused::ScatterProblem small_pushed_all_reduce(int world, int chunks) {
  fused::ScatterProblem problem = small_all_reduce(world, 1);
  problem.push_chunks = chunks;
  return problem;
}

/// The pipelined gather of small_gather(). The product of source `broken` is refused.
inline Recorded record_gather(int world, int rank, bool keep_own = true, bool in_place = false,
                              int broken = -1) {
  const fused::GatherProblem problem = small_gather(world, keep_own, in_place);
  const std::byte* own = nullptr;
  const std::byte* gathered = nullptr;
  RecorderDevice device([&](const TensorView& a, const TensorView&) -> Result<std::string> {
    const bool is_own = a.data == own;
    const auto source = is_own ? rank : (a.data_as<const std::byte>() - gathered) / (kRowsARank * 3 * 4);
    if (source == broken) return fail(ErrorCode::kInternal, "enough");
    return fmt::format("use{}{}", source, is_own ? "(own)" : "");
  });
  const auto built = fused::build_pipelined_gather(problem, rank, device);
  RecorderRun run(built.program, device);

  std::vector<float> mine(kRowsARank * 3), b(6);
  std::vector<float> all(static_cast<std::size_t>(kRowsARank * world * 3));
  std::vector<float> out(static_cast<std::size_t>(kRowsARank * world * 2));
  const TensorView b_view = TensorView::contiguous(b.data(), {3, 2}, DType::kF32);
  const TensorView out_view = TensorView::contiguous(out.data(), {kRowsARank * world, 2}, DType::kF32);
  fused::GatherCall call{.a = TensorView::contiguous(mine.data(), {kRowsARank, 3}, DType::kF32),
                         .b = {&b_view, 1},
                         .out = {&out_view, 1},
                         .gathered = {}};
  if (keep_own) call.gathered = TensorView::contiguous(all.data(), problem.sizes, DType::kF32);
  if (in_place) call.a_handle = run.workspace();
  bind(call, problem, built.roots, run.bindings());
  own = call.a.data_as<const std::byte>();
  gathered = run.view(built.roots.travels[0].gathered).data_as<const std::byte>();
  return run.run();
}

/// The pipelined scatter of small_scatter(). The product for destination `broken` is refused.
inline Recorded record_scatter(int world, int rank, int broken = -1) {
  const fused::ScatterProblem problem = small_scatter(world);
  std::vector<float> a(static_cast<std::size_t>(kRowsARank * world * 4)), b(12), out(kRowsARank * 3);
  const symm::Handle* workspace = nullptr;
  RecorderDevice device([&](const TensorView& rows, const TensorView& to) -> Result<std::string> {
    const auto destination = (rows.data_as<const float>() - a.data()) / (kRowsARank * 4);
    if (destination == broken) return fail(ErrorCode::kInternal, "enough");
    const auto& handle = static_cast<const RecorderHandle&>(*workspace);
    const auto* const at = to.data_as<const std::byte>();
    const bool is_published = at >= handle.own() && at < handle.own() + handle.buffer_size_bytes();
    return fmt::format("make{}->{}", destination, is_published ? handle.slot_of(at, rank) : "out");
  });
  const auto built = fused::build_pipelined_scatter(problem, rank, device);
  RecorderRun run(built.program, device);
  run.workspace()->set_slot_bytes(program::aligned_to_root(kRowsARank * 3 * 4));
  workspace = run.workspace().get();

  const TensorView a_view = TensorView::contiguous(a.data(), {kRowsARank * world, 4}, DType::kF32);
  const TensorView b_view = TensorView::contiguous(b.data(), {4, 3}, DType::kF32);
  bind({.a = {&a_view, 1},
        .b = {&b_view, 1},
        .out = TensorView::contiguous(out.data(), {kRowsARank, 3}, DType::kF32)},
       problem, built.roots, run.bindings());
  return run.run();
}

}  // namespace tandem::test
