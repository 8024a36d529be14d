#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "harness/failure.hpp"
#include "harness/problem.hpp"

namespace tandem::harness {
namespace {

TEST(ProblemLine, IsReadAsItIsWritten) {
  for (const std::string line :
       {"all_gather_matmul,a=3x7x5,n=9,dtype=bf16,dim=1,ranks=3,algorithm=pipelined,seed=7",
        "all_gather_matmul,a=0x5,n=9+0,dtype=f16,dim=0,ranks=1,algorithm=native,bias=1,gathered=1,b=column,"
        "seed=1",
        "all_gather_matmul,a=3x5,n=9,dtype=f8e4m3,dim=0,ranks=2,algorithm=auto,scales=block,out=f32,seed=1",
        "matmul_reduce_scatter,a=3x5,n=9,dtype=f8e5m2,dim=0,ranks=2,algorithm=auto,scales=row,reduce=sum,"
        "seed=1",
        "matmul_reduce_scatter,a=4x6,n=8,dtype=f32,dim=1,ranks=2,algorithm=serial,reduce=avg,bias=1,seed="
        "2"}) {
    EXPECT_EQ(to_line(parse_problem(line)), line);
  }
}

TEST(ProblemLine, WhatDoesNotFitIsNamed) {
  const auto why = [](const std::string& line) -> std::string {
    try {
      static_cast<void>(parse_problem(line));
    } catch (const Failure& failure) {
      return std::to_string(failure.exit_code()) + ": " + failure.error().text();
    }
    return "accepted";
  };
  EXPECT_EQ(why("all_gather_matmul,a=3x5,n=9,dim=2,ranks=3"),
            "2: --gather-dim 2 is outside [0, 2): A has sizes [3, 5]; count dimensions from 0");
  EXPECT_EQ(why("all_gather_matmul,a=3xk,n=9"), "2: --problem: a='k': need a whole number");
  EXPECT_EQ(why("all_gather_matmul,a=3x5,n=9,dtype=f8e4m3"),
            "2: dtype f8e4m3 needs scales: pass --scales tensor, row or block");
  EXPECT_EQ(why("all_gather_matmul,a=3x5,n=9,dtype=bf16,scales=row"),
            "2: --scales row with dtype bf16: need dtype f8e4m3 or f8e5m2");
  EXPECT_EQ(why("all_gather_matmul,a=3x5,n=9,dtype=bf16,out=f32"),
            "2: --out-dtype f32: products of bf16 have its type; only those of f8 have another");
  EXPECT_EQ(why("all_gather_matmul,a=3x200,n=9,dtype=f8e4m3,scales=block,dim=1,ranks=2"),
            "2: --scales block and --gather-dim 1, the last: slices of 200 columns over 2 ranks begin at "
            "multiples of 100, need multiples of 128; gather another dimension");
  EXPECT_EQ(why("all_gather_scaled_matmul,a=3x5,n=9"),
            "2: op 'all_gather_scaled_matmul': name it all_gather_matmul, with --dtype f8e4m3 or f8e5m2 and "
            "--scales");
  EXPECT_EQ(why("matmul_reduce_scatter,a=3x5,n=9,dtype=f8e4m3,scales=block").substr(0, 2), "4:");
  EXPECT_EQ(why("matmul_all_reduce,a=3x5,n=9,dtype=f8e4m3,scales=block").substr(0, 2), "4:");
  EXPECT_EQ(
      why("low_contention_all_gather,a=3x5,n=9"),
      "4: op 'low_contention_all_gather' multiplies nothing: run, check and bench take it by its name; need "
      "all_gather_matmul, matmul_reduce_scatter or matmul_all_reduce here");
  EXPECT_EQ(why("async_input_mm,a=3x5,n=9"),
            "4: op 'async_input_mm' is not built yet: need all_gather_matmul, matmul_reduce_scatter or "
            "matmul_all_reduce");
  EXPECT_EQ(why("matmul_4bit,a=3x5,n=9"),
            "4: op 'matmul_4bit' runs in one process, which only run and bench know: need all_gather_matmul, "
            "matmul_reduce_scatter or matmul_all_reduce here");
  EXPECT_EQ(why("matmul_all_reduce,a=3x5,n=9,dim=1"),
            "2: dim 1: matmul_all_reduce scatters none: leave it out");
}

// Every rank's windows, one behind the other, are the whole tensor.
TEST(ProblemWindows, CoverTheWhole) {
  for (const Op op : kOps) {
    Problem problem;
    problem.op = op;
    problem.a = {7, 10};
    problem.n = {9};
    problem.ranks = 4;
    std::int64_t a = 0;
    std::int64_t b = 0;
    std::int64_t result = 0;
    for (int rank = 0; rank < problem.ranks; ++rank) {
      EXPECT_EQ(window_of_a(problem, rank).shard.offset, a);
      a += window_of_a(problem, rank).shard.size;
      b += window_of_b(problem, 0, rank).shard.size;
      result += window_of_result(problem, 0, rank).shard.size;
      if (op == Op::kMatmulAllReduce) result = window_of_result(problem, 0, rank).shard.size;  // of all of it
    }
    const bool gathers = op == Op::kAllGatherMatmul;
    EXPECT_EQ(a, gathers ? 7 : 10);
    EXPECT_EQ(b, gathers ? 9 : 10);
    EXPECT_EQ(result, gathers ? 9 : 7);
  }
}

// As the ops take them: see scaled_gather_args().
TEST(ProblemWindows, OfScales) {
  Problem problem;
  problem.a = {3, 7, 512};
  problem.n = {9};
  problem.dtype = DType::kF8E4M3;
  problem.ranks = 2;
  const auto part = [](const Window& window) {
    return std::vector<std::int64_t>{window.dim, window.shard.offset, window.shard.size};
  };
  using Part = std::vector<std::int64_t>;
  problem.scales = Scales::kTensor;
  EXPECT_EQ(part(window_of_a_scale(problem, 1)), (Part{0, 0, 1}));
  EXPECT_EQ(part(window_of_b_scale(problem, 0, 1)), (Part{0, 0, 1}));
  problem.scales = Scales::kBlock;
  problem.dim = 1;
  EXPECT_EQ(a_scale_sizes(problem), (Dims{3, 7, 4}));
  EXPECT_EQ(b_scale_sizes(problem, 0), (Dims{4, 9}));
  EXPECT_EQ(part(window_of_a_scale(problem, 1)), (Part{1, 4, 3}));
  EXPECT_EQ(part(window_of_b_scale(problem, 0, 1)), (Part{1, 5, 4}));
  problem.dim = 2;
  EXPECT_EQ(part(window_of_a_scale(problem, 1)), (Part{2, 2, 2}));
  problem.scales = Scales::kRow;
  EXPECT_EQ(part(window_of_a_scale(problem, 1)), (Part{0, 0, 3})) << "each slice has the scales of its rows";
  problem.op = Op::kMatmulReduceScatter;
  EXPECT_EQ(part(window_of_b_scale(problem, 0, 1)), (Part{0, 0, 1}));
}

}  // namespace
}  // namespace tandem::harness
