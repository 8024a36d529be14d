#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "unit/program_problems.hpp"
#include "unit/program_runs.hpp"

// What programs print equals the files in tests/golden, so that a change of a program is seen in review.

namespace tandem {
namespace {

std::string text_in(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Leaves what it got in a file, to be compared, or copied if it is right.
void expect_golden(const std::string& name, const std::string& got) {
  const std::string golden = TANDEM_GOLDEN "/" + name;
  if (text_in(golden) == got) return;
  const std::string path = testing::TempDir() + name;
  std::ofstream(path) << got;
  ADD_FAILURE() << golden << " differs from " << path;
}

TEST(ProgramTexts, of_pipelined_schedules_are_the_published_ones_on_every_rank) {
  std::string all;
  for (const bool gather : {true, false}) {
    for (int world = 1; world <= 8; ++world) {
      for (int rank = 0; rank < world; ++rank) {
        const test::Recorded recorded =
            gather ? test::record_gather(world, rank) : test::record_scatter(world, rank);
        all += fmt::format("{}, rank {} of {}: {}\n", gather ? "gather" : "scatter", rank, world,
                           recorded.trace.to_string());
      }
    }
  }
  for (int world = 2; world <= 8; ++world) {
    for (const int chunks : {1, 2}) {
      const test::Programs programs =
          test::programs_of(&fused::build_pipelined_scatter, test::small_pushed_scatter(world, chunks));
      for (const program::Program& program : programs) {
        all += fmt::format("scatter pushed in chunks ({}), rank {} of {}: {}\n", chunks, program.rank, world,
                           test::trace_of(program).to_string());
      }
    }
  }
  for (int world = 1; world <= 8; ++world) {
    for (int parts = 1; parts <= (world > 1 ? 2 : 1); ++parts) {
      const auto add = [&](std::string_view what, const fused::ScatterProblem& problem) {
        for (const program::Program& program : test::programs_of(&fused::build_pipelined_scatter, problem)) {
          all += fmt::format("{} ({}), rank {} of {}: {}\n", what, parts, program.rank, world,
                             test::trace_of(program).to_string());
        }
      };
      add("all-reduce in rounds", test::small_all_reduce(world, parts));
      if (world > 1) add("all-reduce pushed in chunks", test::small_pushed_all_reduce(world, parts));
    }
  }
  for (int world = 2; world <= 4; ++world) {
    for (const bool has_link : {false, true}) {
      for (const bool at_once : {false, true}) {
        for (const program::Program& program : test::programs_of(
                 &fused::build_native_scatter, test::small_told_scatter(world, at_once, has_link))) {
          all += fmt::format("scatter told{}{}, rank {} of {}: {}\n", at_once ? " at once" : "",
                             has_link ? " over a link" : "", program.rank, world,
                             test::trace_of(program).to_string());
        }
      }
    }
  }
  expect_golden("schedules.txt", all);
}

/// Of rows, with a tensor beside it.
fused::GatherProblem scaled_gather() {
  fused::GatherProblem scaled{.dtype = DType::kF8E4M3,
                              .sizes = {8, 16},
                              .world = 2,
                              .is_scaled = true,
                              .scale_mode = ScaleMode::kRowwiseSharded,
                              .num_also_gathered = 1,
                              .device = {},
                              .num_b = 1,
                              .sum_n = 4,
                              .copied = 1};
  scaled.also_gather[0] = {DType::kBF16, 5};
  return scaled;
}

fused::GatherProblem quantized_gather() {
  fused::GatherProblem quantized = scaled_gather();
  quantized.dtype = DType::kBF16;
  quantized.quantize = DType::kF8E4M3;
  quantized.num_also_gathered = 0;
  quantized.keeps_gathered = true;
  return quantized;
}

using Add = std::function<void(const std::string& title, const program::Program& program)>;

void add_pushed_scatters(const Device& device, const Add& add) {
  for (const int world : {2, 3}) {
    fused::ScatterProblem pushed = test::small_pushed_scatter(world, 2);
    add("scatter of rows, pushed", fused::build_pipelined_scatter(pushed, 1, device).program);
    pushed.num_products = 2;
    add("scatter of two products, pushed", fused::build_pipelined_scatter(pushed, 1, device).program);
    pushed.reduce_op = coll::ReduceOp::kAvg;
    pushed.has_bias = true;
    pushed.keeps_product = true;
    add("mean of two products and a bias, pushed and kept",
        fused::build_pipelined_scatter(pushed, 1, device).program);
  }
}

void add_native_scatters(const Device& device, const Add& add) {
  fused::ScatterProblem problem = test::small_scatter(3);
  problem.dtype = problem.partials = DType::kBF16;
  problem.gives_while_multiplying = true;
  add("scatter of rows", fused::build_native_scatter(problem, 1, device).program);
  problem.gives_while_multiplying = false;
  problem.num_products = 2;
  problem.has_bias = true;
  problem.keeps_product = true;
  problem.reduce_op = coll::ReduceOp::kAvg;
  add("mean of two products and a bias, kept", fused::build_native_scatter(problem, 1, device).program);
}

void add_all_reduces(const Device& device, const Add& add) {
  fused::ScatterProblem problem = test::small_all_reduce(3, 2);
  add("all-reduce", fused::build_serial_scatter(problem, 1, device).program);
  add("all-reduce in two rounds", fused::build_pipelined_scatter(problem, 1, device).program);
  problem.num_products = 2;
  problem.num_copied = 1;
  problem.copied = 2;
  problem.copied_bytes = 15 * 4 * 4;
  problem.has_bias = true;
  problem.reduce_op = coll::ReduceOp::kAvg;
  add("mean of two products and a bias, one a copied, in two rounds",
      fused::build_pipelined_scatter(problem, 0, device).program);
  fused::ScatterProblem native = test::small_all_reduce(3, 1);
  native.dtype = native.partials = DType::kBF16;
  native.gives_while_multiplying = true;
  native.has_bias = true;
  add("all-reduce of few rows and a bias", fused::build_native_scatter(native, 1, device).program);
  native.sizes[0] = 600;
  add("all-reduce of many rows and a bias", fused::build_native_scatter(native, 1, device).program);
  for (const int world : {2, 3}) {
    fused::ScatterProblem pushed = test::small_pushed_all_reduce(world, 2);
    add("all-reduce, pushed", fused::build_pipelined_scatter(pushed, 1, device).program);
    pushed.has_bias = true;
    add("all-reduce with a bias, pushed", fused::build_pipelined_scatter(pushed, 0, device).program);
  }
}

TEST(ProgramTexts, of_a_few_programs_are_as_they_were) {
  const test::RecorderDevice device;
  std::string all;
  const auto add = [&](const std::string& title, const program::Program& program) {
    all += fmt::format("# {}\n{}\n", title, program.to_string());
  };
  const fused::GatherProblem rows = test::small_gather(4);
  add("gather of rows, kept", fused::build_serial_gather(rows, 1, device).program);
  add("gather of rows, kept", fused::build_pipelined_gather(rows, 1, device).program);
  fused::GatherProblem native = rows;
  native.first_consumed = 0;
  add("gather of rows, kept", fused::build_native_gather(native, 1, device).program);
  native.is_capturing = true;
  add("recorded gather of rows, kept", fused::build_native_gather(native, 1, device).program);
  native.is_capturing = false;
  native.piece_peers = 2;
  native.first_consumed = -1;
  native.by_mm = 1;
  native.has_bias = true;
  add("gather of rows, kept, sent in pieces to two ranks, multiplied behind its waits",
      fused::build_native_gather(native, 1, device).program);
  native.piece_peers = 3;
  native.first_consumed = 0;
  native.by_mm = 0;
  native.has_bias = false;
  add("gather of few rows, kept, sent in pieces to all ranks",
      fused::build_native_gather(native, 1, device).program);
  const fused::GatherProblem columns{
      .sizes = {4, 7}, .dim = 1, .world = 3, .device = {}, .num_b = 2, .sum_n = 5};
  add("gather of the last dim", fused::build_pipelined_gather(columns, 1, device).program);
  const fused::GatherProblem scaled = scaled_gather();
  add("scaled gather of rows, with a tensor beside it",
      fused::build_pipelined_gather(scaled, 0, device).program);
  const fused::GatherProblem quantized = quantized_gather();
  add("gather of rows, kept, and quantised behind it",
      fused::build_serial_gather(quantized, 0, device).program);
  add("gather of rows, kept, and quantised behind it",
      fused::build_pipelined_gather(quantized, 0, device).program);
  const fused::ScatterProblem scatter = test::small_scatter(4);
  add("scatter of rows", fused::build_serial_scatter(scatter, 1, device).program);
  add("scatter of rows", fused::build_pipelined_scatter(scatter, 1, device).program);
  add_pushed_scatters(device, add);
  add_native_scatters(device, add);
  add_all_reduces(device, add);
  const fused::ScatterProblem scattered_columns{.dtype = DType::kBF16,
                                                .partials = DType::kBF16,
                                                .sizes = {3, 10},
                                                .dim = 1,
                                                .world = 4,
                                                .device = {},
                                                .num_products = 2,
                                                .sum_k = 8,
                                                .has_bias = true};
  add("scatter of columns, two products and a bias",
      fused::build_serial_scatter(scattered_columns, 1, device).program);
  add("scatter of columns, two products and a bias",
      fused::build_pipelined_scatter(scattered_columns, 1, device).program);
  expect_golden("program_texts.txt", all);
}

}  // namespace
}  // namespace tandem
