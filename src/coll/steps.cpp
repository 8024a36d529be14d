#include "coll/steps.hpp"

#include <tandem/base/shard.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "coll/algorithms.hpp"
#include "coll/backend.hpp"
#include "timeline/timeline_impl.hpp"

namespace tandem::coll {
namespace {

Problem all_reduce_of(const TensorView& input, DType output, int world) {
  Problem problem = problem_of(input, 0, world);
  problem.element_bytes = size_bytes(input.dtype);
  problem.out_element_bytes = size_bytes(output);
  return problem;
}

/// Of the first that can run, as if it connected.
template <class Args>
std::optional<double> first_us(Algorithms<Args> all, const Problem& problem, const Device& device,
                               const cost::GpuRates& gpu) {
  for (const Algorithm<Args>& algorithm : all) {
    if (!fits(algorithm, problem, device)) continue;
    if (algorithm.predicted_us == nullptr) break;
    return algorithm.predicted_us(problem, gpu);
  }
  return std::nullopt;
}

/// Runs the first that fits and connects. `op`: of which it is one.
template <class Args>
Result<void> run_first_of(std::string_view op, Algorithms<Args> all, const Args& args, const Problem& problem,
                          const EndBarrier& end, Stream& stream) {
  const timeline::Parts parts(end.group, stream);
  for (const Algorithm<Args>& algorithm : all) {
    if (!fits(algorithm, problem, stream.device())) continue;
    if (algorithm.connect != nullptr) {
      TANDEM_ASSIGN(const Answer connects, algorithm.connect(problem, end.group, stream));
      if (!connects) continue;
    }
    TANDEM_TRY(algorithm.run(args, end, stream));
    return parts.done(op, algorithm.name, problem.whole_bytes);
  }
  return failf(ErrorCode::kInternal, "no algorithm of {} can run", to_string(stream.device().id()));
}

}  // namespace

Problem problem_of(const TensorView& whole, int dim, int world) {
  Dims part = whole.sizes;
  part[dim] = shard_stride(whole.size(dim), world);
  return {.whole_bytes = whole.size_bytes(),
          .part_bytes = numel(part) * size_bytes(whole.dtype),
          .has_equal_parts = whole.size(dim) % world == 0,
          .world = world};
}

Result<void> run_first(const GatherCall& call, const Problem& problem, const EndBarrier& end,
                       Stream& stream) {
  TANDEM_ASSIGN(const Backend* const backend, backend_of("all_gather", stream));
  return run_first_of("all_gather", backend->algorithms().gather, call, problem, end, stream);
}

Result<void> run_first(const ScatterCall& call, const Problem& problem, const EndBarrier& end,
                       Stream& stream) {
  TANDEM_ASSIGN(const Backend* const backend, backend_of("reduce_scatter", stream));
  return run_first_of("reduce_scatter", backend->algorithms().scatter, call, problem, end, stream);
}

std::int64_t all_gather_workspace_bytes(const TensorView& output, int world, const Device& device) {
  return workspace_bytes(algorithms_of(device).gather, problem_of(output, 0, world), device);
}

std::int64_t reduce_scatter_workspace_bytes(const TensorView& input, int world, const Device& device) {
  return workspace_bytes(algorithms_of(device).scatter, problem_of(input, 0, world), device);
}

std::int64_t all_reduce_workspace_bytes(const TensorView& input, DType output, int world,
                                        const Device& device) {
  return workspace_bytes(algorithms_of(device).all_reduce, all_reduce_of(input, output, world), device);
}

std::optional<double> predicted_us(Collective collective, std::int64_t part_bytes, int world,
                                   const Device& device, const cost::GpuRates& gpu) {
  const Problem problem = {.whole_bytes = world * part_bytes, .part_bytes = part_bytes, .world = world};
  const AlgorithmLists all = algorithms_of(device);
  switch (collective) {
    case Collective::kAllGather:
      return first_us(all.gather, problem, device, gpu);
    case Collective::kReduceScatter:
      return first_us(all.scatter, problem, device, gpu);
    case Collective::kAllReduce:
      break;
  }
  return first_us(all.all_reduce, problem, device, gpu);
}

Result<void> reduce_ranks(const ReduceRanksArgs& args, Stream& stream) {
  if (args.out.numel() == 0) return {};
  TANDEM_TRY(args.handle->watch(stream));
  TANDEM_ASSIGN(Backend* const backend, backend_of("reduce_ranks", stream));
  return backend->reduce_ranks(args, stream);
}

Result<void> enqueue_all_gather(const AllGatherArgs& args, symm::Handle* workspace, Group& group,
                                Stream& stream) {
  if (args.output.numel() == 0) return {};
  return run_first(GatherCall{.input = args.input, .output = args.output},
                   problem_of(args.output, 0, group.size()), {*workspace, group, symm::kGatherChannel},
                   stream);
}

Result<void> enqueue_reduce_scatter(const ReduceScatterArgs& args, symm::Handle* workspace, Group& group,
                                    Stream& stream) {
  if (args.input.numel() == 0) return {};
  return run_first(ScatterCall{.input = args.input, .output = args.output, .op = args.op, .bias = args.bias},
                   problem_of(args.input, 0, group.size()), {*workspace, group, symm::kScatterChannel},
                   stream);
}

Result<void> enqueue_all_reduce(const AllReduceArgs& args, symm::Handle* workspace, Group& group,
                                Stream& stream) {
  if (args.input.numel() == 0) return {};
  TANDEM_ASSIGN(const Backend* const backend, backend_of("all_reduce", stream));
  return run_first_of("all_reduce", backend->algorithms().all_reduce, args,
                      all_reduce_of(args.input, args.output.dtype, group.size()),
                      {*workspace, group, symm::kScatterChannel}, stream);
}

}  // namespace tandem::coll
