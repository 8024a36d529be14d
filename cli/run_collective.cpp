#include "run_collective.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "failure.hpp"
#include "harness/problem.hpp"
#include "job_results.hpp"
#include "memory_need.hpp"
#include "shell_words.hpp"
#include "tensor_file.hpp"

namespace tandem::cli {
namespace {

/// The file, and what is to be done with it.
struct Input {
  Tensor file;
  CollectiveCase c;

  [[nodiscard]] TensorView of_rank(int rank, int world) const {
    const TensorView& whole = file.view();
    if (!c.gathers()) return whole.select(0, rank);
    const Shard part = c.part_of(rank, world);
    return whole.narrow(c.dim, part.offset, part.size);
  }
};

DType type_of(const CollectiveRun& run, DType stored) {
  if (!is_floating(stored)) {
    bad_input(fmt::format("--a {}: its type {} is no floating type; store it as f16, bf16, f32 or f64", run.a,
                          tandem::to_string(stored)));
  }
  if (!run.dtype.empty()) return harness::parse_product_dtype(run.dtype);
  return stored == DType::kF64 ? DType::kF32 : stored;
}

Input read_input(const CollectiveRun& run) {
  if (run.a.empty()) bad_input(fmt::format("run {} needs --a FILE and --out FILE", to_string(run.op)));
  Input input{read_tensor_file(run.a, "--a"), {.op = run.op, .sizes = {}, .dim = run.dim}};
  const TensorView& whole = input.file.view();
  input.c.dtype = type_of(run, whole.dtype);
  input.c.reduce = harness::parse_reduce(run.reduce);
  input.c.sizes = whole.sizes;
  if (!input.c.gathers()) {
    if (whole.dim() < 2) {
      bad_input(fmt::format("--a {} has sizes {}: need [ranks, ...], a summand a rank", run.a,
                            tandem::to_string(whole.sizes)));
    }
    input.c.sizes.erase(0);
  }
  if (run.dim < 0 || run.dim >= input.c.sizes.size()) {
    bad_input(fmt::format("{} {}: need 0 to {} for sizes {}",
                          input.c.gathers() ? "--gather-dim" : "--scatter-dim", run.dim,
                          input.c.sizes.size() - 1, tandem::to_string(input.c.sizes)));
  }
  return input;
}

/// As many as there are summands.
void choose_ranks(const Input& input, JobFlags& job) {
  if (input.c.gathers()) return;
  const std::int64_t num_summands = input.file.view().size(0);
  if (num_summands < 1 || job.ranks.value_or(num_summands) != num_summands) {
    bad_input(fmt::format("--a has sizes {}, {} summands: need one for each of {} ranks",
                          tandem::to_string(input.file.view().sizes), num_summands, job.ranks.value_or(1)));
  }
  harness::check_ranks(static_cast<int>(std::min<std::int64_t>(num_summands, 1 << 20)), "--a");
  job.ranks = static_cast<int>(num_summands);
}

JobResults results_of(const CollectiveCase& c, int ranks) {
  const auto part_of = [c, ranks](int /*i*/, int rank) {
    if (!c.gathers()) return harness::Window{c.dim, c.part_of(rank, ranks)};
    return harness::Window{c.dim, {0, rank == 0 ? c.sizes[c.dim] : 0}};  // rank 0 has it all
  };
  return {.ranks = ranks, .tensors = {{c.sizes, c.dtype}}, .part_of = part_of};
}

}  // namespace

int run_collective(const CollectiveRun& run, JobFlags job, const Invocation& invocation) {
  const Input input = read_input(run);
  choose_ranks(input, job);
  claim_tensor_file(run.out);
  const JobPlace place = job.choose(invocation.machine);
  const CollectiveCase& c = input.c;
  const std::int64_t num_bytes = bytes_of(c.sizes, c.dtype);
  // A rank has the whole on one side and a part on the other; the result is here once more.
  check_memory_need(fmt::format("run on {} ranks", place.ranks), times_bytes(place.ranks + 2, num_bytes));
  fmt::print("{}\n", place.heading);
  std::fflush(stdout);
  const GatheredResults results(results_of(c, place.ranks));
  static_cast<void>(run_job({place.ranks, invocation.arguments, place.placement, nullptr, nullptr, &results},
                            invocation.jobs));
  write_tensor_file(run.out, results.tensors()[0]);
  fmt::print("{}: by copies; {}\n", to_text(c, place.ranks), place.placement.link_in_words());
  fmt::print("wrote {}: {} {}\n", run.out, tandem::to_string(stored_dtype(run.out, c.dtype)),
             tandem::to_string(c.sizes));
  std::vector<std::string> again{"tandem",
                                 "run",
                                 std::string(to_string(c.op)),
                                 "--a",
                                 run.a,
                                 c.gathers() ? "--gather-dim" : "--scatter-dim",
                                 std::to_string(c.dim)};
  if (!c.gathers()) again.insert(again.end(), {"--reduce", std::string(coll::to_string(c.reduce))});
  again.insert(again.end(), {"--dtype", std::string(tandem::to_string(c.dtype)), "--out", run.out, "--ranks",
                             std::to_string(place.ranks)});
  fmt::print("again: {}\n", shell_words(again));
  return kOk;
}

nlohmann::json run_collective_rank(const CollectiveRun& run, const JobFlags& job, const RankContext& context,
                                   const Config& config) {
  const Input input = read_input(run);
  const Session session(context, job.config_of(config), "run");
  const RankCollective collective(input.c, session);
  collective.fill(input.of_rank(context.rank, context.size));
  collective.poison();
  collective.enqueue(session.stream());
  session.finish();
  hand_in({collective.result()}, results_of(input.c, context.size), context);
  return {};
}

}  // namespace tandem::cli
