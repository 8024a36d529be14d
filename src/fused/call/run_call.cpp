#include "fused/call/run_call.hpp"

#include <atomic>
#include <chrono>
#include <tandem/base/log.hpp>
#include <tandem/base/time_text.hpp>

#include "base/alignment.hpp"
#include "base/format.hpp"
#include "base/try.hpp"
#include "bootstrap/hosts.hpp"
#include "coll/collective_call.hpp"
#include "coll/group_lanes.hpp"
#include "device/recorder.hpp"
#include "fused/call/group_memory.hpp"
#include "program/checks.hpp"
#include "program/runner.hpp"

namespace tandem::fused {
namespace {

/// How the call's tensors lie and are aligned, wherever they are. Allocates nothing.
std::uint64_t layout_of(const OpPlan& plan) {
  Hash hash;
  for (std::size_t i = 0; i < plan.program.roots.size(); ++i) {
    if (!program::is_callers(plan.program.roots[i].space)) continue;
    const TensorView& view = plan.bindings.roots()[i].view;
    hash.add(alignment_of(view.data)).add(view.dtype).add(view.sizes).add(view.strides);
  }
  return hash.value();
}

/// Which call of the plan it is: where its tensors are and how they lie.
void add_to_key(const OpPlan& plan, CallKey& key) {
  key.add(static_cast<std::int64_t>(plan.id)).add(plan.bindings.scratch());
  for (std::size_t i = 0; i < plan.program.roots.size(); ++i) {
    if (!program::is_callers(plan.program.roots[i].space)) continue;
    const program::Bindings::Bound& bound = plan.bindings.roots()[i];
    key.add(bound.view.data).add(bound.handle).add(static_cast<std::int64_t>(bound.view.dtype));
    key.add(bound.view.dim());
    for (const std::int64_t size : bound.view.sizes) key.add(size);
    for (const std::int64_t stride : bound.view.strides) key.add(stride);
  }
}

/// Where this group keeps calls that may come again; null where nothing is gained by a recording of this one,
/// or where it would not be the same: not of programs that use the inbox, whose epoch the host counts; not
/// inside a recording of the caller's; not across hosts; not with a trace, a timeline, faults or delays,
/// which act while a call is enqueued.
GraphCache* graphs_for(const PlannedCall& call) {
  const Config& config = call.group.config();
  const OpPlan& plan = *call.plan;
  if (plan.program.memory.uses_inbox() || !plan.is_recordable || call.trace != nullptr ||
      call.group.timeline() != nullptr || bootstrap::link_of(call.group) != nullptr ||
      config.record_after == 0)
    return nullptr;
  if (config.link_delay.count() > 0 || !config.fault.empty()) return nullptr;
  const Device& device = call.stream.device();
  const Recorder* const recorder = device.service<Recorder>();
  if (recorder == nullptr || !recorder->is_usable() || call.stream.is_capturing()) return nullptr;
  RecordedCalls& recorded = device_memory(call.group, device.id()).recorded;
  // Where the device has been opened anew, the memory of its products is another.
  if (recorded.device != &device) recorded = {.device = &device};
  return &recorded.graphs;
}

/// Records the program of a call that has run, on lanes of its own.
Result<std::unique_ptr<Graph>> record(const PlannedCall& call, symm::Handle* workspace) {
  OpPlan& plan = *call.plan;
  Device& device = call.stream.device();
  TANDEM_ASSIGN(Stream* const on, coll::open_recording_lanes(2, call.group, device));
  TANDEM_TRY(make_ready(plan, call, *on));
  const auto begin = std::chrono::steady_clock::now();
  auto graph = device.service<Recorder>()->record({*on, coll::side_lane(1, call.group, *on)},
                                                  [&] { return enqueue(plan, call.group, *on, workspace); });
  if (graph) {
    log(call.group.config().log_level, LogLevel::kDebug,
        fmt::format("{} recorded in {}", plan.label, time_text(std::chrono::steady_clock::now() - begin)));
  }
  return graph;
}

/// Calls with its key go on step by step; all calls of the plan if it is nothing that can be recorded.
void give_up_recording(CachedGraph& cached, const PlannedCall& call, const Error& why) {
  cached.is_refused = true;
  if (why.code() == ErrorCode::kUnsupported) call.plan->is_recordable = false;
  log(call.group.config().log_level, LogLevel::kInfo,
      fmt::format("{} is not recorded, its steps are enqueued one by one: {}", call.plan->label, why.text()));
}

/// Behind what was enqueued, so that no peer waits meanwhile.
void record_if_due(CachedGraph& cached, const PlannedCall& call, symm::Handle* workspace) {
  if (cached.is_refused || cached.num_calls < call.group.config().record_after) return;
  auto graph = record(call, workspace);
  if (!graph) return give_up_recording(cached, call, graph.error());
  cached.graph = *std::move(graph);
  cached.workspace = workspace;
  cached.kernel_inbox = call.plan->bindings.kernel_inbox().handle;
  cached.in_place = call.in_place;
}

void trace_steps(const PlannedCall& call) {
  call.trace->begin(call.plan->label);
  for (const trace::Step& step : call.plan->program.traced()) call.trace->add(step);
}

}  // namespace

std::uint64_t next_plan_id() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

OpReport report_of(const std::shared_ptr<OpPlan>& plan) {
  return {.algorithm = plan->algorithm,
          .reason = plan->reason,
          .key = plan->key,
          .candidates = plan->candidates,
          .tune_key = plan->tune_key ? &*plan->tune_key : nullptr,
          .checks_nan = program::checks_nan(plan->program),
          .plan = plan};
}

Result<void> make_ready(OpPlan& plan, const PlannedCall& call, Stream& stream) {
  if (const auto* const link = bootstrap::link_of(call.group); link != nullptr && stream.is_capturing()) {
    return failf(
        ErrorCode::kUnsupported,
        "{}: rows that cross between {} hosts cannot be recorded; make this call outside of the graph",
        plan.label, link->place.num_hosts);
  }
  const program::Program& program = plan.program;
  Scratch& scratch = device_memory(call.group, plan.device).scratch;
  TANDEM_TRY(scratch.reserve(program.memory.scratch_bytes, call.group, stream.device()));
  plan.bindings.bind_group(call.group);
  plan.bindings.bind_lane(program::kCurrent, stream);
  for (int lane = 1; lane < program.num_lanes; ++lane)
    plan.bindings.bind_lane(static_cast<program::Lane>(lane), coll::side_lane(lane, call.group, stream));
  plan.bindings.bind_scratch(program, scratch.data(), plan.device);
  call.bind(plan.bindings);
  // Two kinds of calls may take turns: such as those on the caller's stream and on recording lanes.
  const PreparedProducts here{stream.id(), layout_of(plan)};
  auto& [last, before] = plan.prepared;
  if (last == here || before == here) return {};
  plan.bindings.bind_workspace_like(program, plan.device);
  plan.bindings.bind_inbox_like(program, plan.device);
  TANDEM_TRY(program::prepare(program, plan.bindings));
  if (stream.is_capturing()) return {};  // not all can be made in a recording
  before = last;
  last = here;
  return {};
}

namespace {

/// Where the plan's products leave what they send, if they send anything: in a call's first steps, so that
/// all ranks make it at the same call.
Result<void> find_kernel_inbox(OpPlan& plan, Group& group, Stream& stream) {
  const program::MemoryNeeds& needs = plan.program.memory;
  if (!needs.uses_kernel_inbox()) return {};
  symm::KernelInbox& inbox = device_memory(group, plan.device).kernel_inbox;
  TANDEM_ASSIGN(const symm::KernelInboxPlace place,
                inbox.place({.data_bytes = needs.kernel_inbox_bytes, .num_words = needs.kernel_inbox_words},
                            group, stream));
  coll::keep_for_ops(group, inbox.block());
  plan.bindings.bind_kernel_inbox(place);
  return {};
}

}  // namespace

Result<void> enqueue(OpPlan& plan, Group& group, Stream& stream, symm::Handle* workspace) {
  const program::Program& program = plan.program;
  plan.bindings.bind_workspace(program, workspace, plan.device);
  if (program.memory.uses_inbox()) {
    symm::Inbox& inbox = inbox_of(group, plan.device);
    TANDEM_ASSIGN(const symm::InboxSlot slot, inbox.next({.data_bytes = program.memory.inbox_bytes,
                                                          .num_words = program.memory.inbox_words,
                                                          .num_flags = program.memory.inbox_flags},
                                                         group, stream));
    coll::keep_for_ops(group, inbox.block());
    plan.bindings.bind_inbox(program, slot, plan.device);
  }
  return program::run(program, plan.bindings, &plan.noted_steps);
}

Result<OpReport> run_call(const PlannedCall& call) {
  OpPlan& plan = *call.plan;
  auto ready = make_ready(plan, call, call.stream);
  if (!ready) return coll::refused(call.group, std::move(ready).error());
  if (call.trace != nullptr) trace_steps(call);
  GraphCache* const graphs = graphs_for(call);
  CachedGraph* cached = nullptr;
  if (graphs != nullptr) {
    add_to_key(plan, graphs->new_key());
    cached = graphs->note_call();
  }
  symm::Handle* workspace = nullptr;
  OpReport report = report_of(call.plan);
  const auto run = [&](symm::Handle* of_group) -> Result<void> {
    workspace = of_group;
    TANDEM_TRY(find_kernel_inbox(plan, call.group, call.stream));
    report.as_graph =
        cached != nullptr && can_launch(*cached, {.workspace = workspace,
                                                  .kernel_inbox = plan.bindings.kernel_inbox().handle,
                                                  .in_place = call.in_place.get()});
    return report.as_graph ? cached->graph->launch(call.stream)
                           : enqueue(plan, call.group, call.stream, workspace);
  };
  TANDEM_TRY(coll::run_collective({.group = call.group,
                                   .stream = call.stream,
                                   .fingerprint = plan.fingerprint,
                                   .workspace_bytes = plan.program.memory.workspace_bytes,
                                   .recorded_workspace_bytes = plan.recorded_workspace_bytes,
                                   .label = plan.label,
                                   .algorithm = to_string(plan.algorithm)},
                                  run));
  if (cached != nullptr && !report.as_graph) record_if_due(*cached, call, workspace);
  return report;
}

}  // namespace tandem::fused

namespace tandem {

std::string program_text(const OpReport& report) {
  if (report.plan == nullptr) return {};
  return static_cast<const fused::OpPlan*>(report.plan.get())->program.to_string();
}

}  // namespace tandem
