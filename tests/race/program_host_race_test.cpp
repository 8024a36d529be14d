// Host programs in all forms, on ranks that are threads, for the thread sanitizer: workers of all ranks read
// each other's memory, and runs follow each other without a host between them.
#include <gtest/gtest.h>

#include <tandem/backend/backend.hpp>
#include <tandem/bootstrap/thread_ranks.hpp>
#include <tandem/program/host/executor.hpp>
#include <vector>

#include "support/host_fusions.hpp"

namespace tandem::program::host {
namespace {

using testing::stated_matmul;
using testing::stated_scatter;
using testing::StatedFusion;

struct Form {
  const char* name;
  bool scatters;
  LowerOptions options;
};

Result<void> run_often(const Form& form, Group& group) {
  constexpr int kRuns = 10;
  const int world = group.size();
  const auto device = open_device({}, group.config());
  if (!device) return tl::unexpected(device.error());
  const auto stream = (*device)->create_stream();
  if (!stream) return tl::unexpected(stream.error());
  const StatedFusion stated = form.scatters ? stated_scatter(world) : stated_matmul(world);
  const auto program = lower(stated.fusion, form.options);
  if (!program) return tl::unexpected(program.error());
  const Dims a_sizes = form.scatters ? Dims{4, 1, world, 2, 3} : Dims{4, 1, 2, 3};
  const auto a = (*device)->allocate_tensor(a_sizes, DType::kF32);
  const auto b = (*device)->allocate_tensor(form.scatters ? Dims{1, 1, 3, 5} : Dims{3, 5}, DType::kF32);
  if (!a || !b) return tl::unexpected(a ? b.error() : a.error());
  const std::vector<TensorView> inputs{a->view(), b->view()};
  const auto executor = Executor::create(*program, inputs, group, **device, 3);
  if (!executor) return tl::unexpected(executor.error());
  const auto out = (*device)->allocate_tensor((*executor)->out_sizes(), DType::kF32);
  if (!out) return tl::unexpected(out.error());
  for (int i = 0; i < kRuns; ++i) {
    if (auto ok = (*executor)->run(inputs, out->view(), **stream); !ok) return ok;
  }
  return (*stream)->synchronize();
}

TEST(HostProgramRace, NoneInAnyForm) {
  const std::vector<Form> forms = {
      {"gather", false, {.workers_wait = true}},
      {"gather_joining_loop", false, {.workers_wait = true, .joining_loop = true}},
      {"ring", false, {.workers_wait = true, .point_to_point = true}},
      {"ring_offset_by_rank", false, {.workers_wait = true, .point_to_point = true, .offset_by_rank = true}},
      {"scatter", true, {.workers_wait = true}},
  };
  for (const Form& form : forms) {
    for (const int world : {2, 3}) {
      const auto done = run_thread_ranks(world, {}, [&](Group& group) { return run_often(form, group); });
      EXPECT_TRUE(done) << form.name << " on " << world << ": " << done.error().to_string();
    }
  }
}

}  // namespace
}  // namespace tandem::program::host
