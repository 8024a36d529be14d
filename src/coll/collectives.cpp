#include <array>
#include <tandem/coll/collectives.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "coll/backend.hpp"
#include "coll/checks.hpp"
#include "coll/collective_call.hpp"
#include "coll/steps.hpp"

namespace tandem::coll {
namespace {

/// Text that is formatted in place: ops allocate nothing on the repeat path.
template <class... Args>
fmt::memory_buffer text_of(fmt::format_string<Args...> format, Args&&... args) {
  fmt::memory_buffer text;
  fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
  return text;
}

auto listed(const Dims& dims) {
  return fmt::join(dims.begin(), dims.end(), ", ");
}

/// What is added up, and the bias.
template <class Args>
std::array<CheckedInput, 2> summed_inputs(const Args& args) {
  return {CheckedInput{"input", &args.input}, CheckedInput{"bias", args.bias ? &*args.bias : nullptr}};
}

std::string_view view_of(const fmt::memory_buffer& text) {
  return {text.data(), text.size()};
}

}  // namespace

std::string_view to_string(ReduceOp op) {
  return op == ReduceOp::kAvg ? "avg" : "sum";
}

Result<void> all_gather(const AllGatherArgs& args, Group& group, Stream& stream) {
  if (auto ok = check_all_gather(args, group, stream); !ok) return refused(group, std::move(ok).error());
  const auto fingerprint =
      text_of("all_gather {} [{}]", to_string(args.output.dtype), listed(args.output.sizes));
  const std::array inputs = {CheckedInput{"input", &args.input}};
  return run_collective(
      {.group = group,
       .stream = stream,
       .fingerprint = view_of(fingerprint),
       .workspace_bytes = all_gather_workspace_bytes(args.output, group.size(), stream.device()),
       .inputs = inputs},
      [&](symm::Handle* workspace) { return enqueue_all_gather(args, workspace, group, stream); });
}

Result<void> reduce_scatter(const ReduceScatterArgs& args, Group& group, Stream& stream) {
  if (auto ok = check_reduce_scatter(args, group, stream); !ok) return refused(group, std::move(ok).error());
  const auto fingerprint =
      text_of("reduce_scatter {} {} [{}] -> {}{}", to_string(args.op), to_string(args.input.dtype),
              listed(args.input.sizes), to_string(args.output.dtype), args.bias ? " + bias" : "");
  const auto inputs = summed_inputs(args);
  return run_collective(
      {.group = group,
       .stream = stream,
       .fingerprint = view_of(fingerprint),
       .workspace_bytes = reduce_scatter_workspace_bytes(args.input, group.size(), stream.device()),
       .inputs = inputs},
      [&](symm::Handle* workspace) { return enqueue_reduce_scatter(args, workspace, group, stream); });
}

Result<void> all_reduce(const AllReduceArgs& args, Group& group, Stream& stream) {
  if (auto ok = check_all_reduce(args, stream); !ok) return refused(group, std::move(ok).error());
  const auto fingerprint =
      text_of("all_reduce {} {} [{}] -> {}{}", to_string(args.op), to_string(args.input.dtype),
              listed(args.input.sizes), to_string(args.output.dtype), args.bias ? " + bias" : "");
  const auto inputs = summed_inputs(args);
  return run_collective(
      {.group = group,
       .stream = stream,
       .fingerprint = view_of(fingerprint),
       .workspace_bytes =
           all_reduce_workspace_bytes(args.input, args.output.dtype, group.size(), stream.device()),
       .inputs = inputs},
      [&](symm::Handle* workspace) { return enqueue_all_reduce(args, workspace, group, stream); });
}

Result<void> reduce_stack(const ReduceStackArgs& args, Stream& stream) {
  TANDEM_TRY(check_reduce_stack(args, stream));
  if (args.out.numel() == 0) return {};
  TANDEM_ASSIGN(Backend* const backend, backend_of("reduce_stack", stream));
  return backend->reduce_stack(args, stream);
}

}  // namespace tandem::coll
