#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tandem/backend/backend.hpp>
#include <tandem/bootstrap/thread_ranks.hpp>
#include <tandem/program/host/executor.hpp>
#include <tandem/symm/symmetric_memory.hpp>
#include <vector>

#include "support/host_fusions.hpp"

namespace tandem::program::host {
namespace {

using testing::stated_matmul;
using testing::StatedFusion;

/// Tensors of one rank that fit together: s 2, m 3, k 8, n 5.
struct Tensors {
  Tensor a;
  Tensor b;
  Tensor out;
  [[nodiscard]] std::vector<TensorView> inputs() const { return {a.view(), b.view()}; }
};

struct Rank {
  Group& group;
  Device& device;
  Stream& stream;
  Tensors tensors;
};

HostProgram program_for(int num_devices, const LowerOptions& options = {.workers_wait = true}) {
  const StatedFusion stated = stated_matmul(num_devices);
  return lower(stated.fusion, options).value();
}

/// What `work` returns first on ranks that are threads.
Error error_on_ranks(int size, const std::function<Result<void>(Rank& rank)>& work) {
  const auto done = run_thread_ranks(size, {}, [&](Group& group) -> Result<void> {
    const auto device = open_device({}, group.config());
    if (!device) return tl::unexpected(device.error());
    const auto stream = (*device)->create_stream();
    if (!stream) return tl::unexpected(stream.error());
    Rank rank{group, **device, **stream, {}};
    rank.tensors.a = (*device)->allocate_tensor({2, 1, 3, 8}, DType::kF32).value();
    rank.tensors.b = (*device)->allocate_tensor({8, 5}, DType::kF32).value();
    rank.tensors.out = (*device)->allocate_tensor({2, size, 3, 5}, DType::kF32).value();
    return work(rank);
  });
  return done ? Error(ErrorCode::kInternal, "nothing was refused") : done.error();
}

void expect_error(const Error& error, ErrorCode code, const std::string& text) {
  EXPECT_EQ(error.code(), code) << error.text();
  EXPECT_NE(error.text().find(text), std::string::npos) << error.text();
}

Error create_error(const HostProgram& program, int size,
                   const std::function<std::vector<TensorView>(const Tensors&)>& like, int num_streams = 2) {
  return error_on_ranks(size, [&](Rank& rank) -> Result<void> {
    auto executor = Executor::create(program, like(rank.tensors), rank.group, rank.device, num_streams);
    if (!executor) return tl::unexpected(executor.error());
    return {};
  });
}

std::vector<TensorView> inputs_of(const Tensors& tensors) {
  return tensors.inputs();
}

TEST(ExecutorOfAHostProgram, RefusesToBeMade) {
  expect_error(create_error(program_for(4), 2, inputs_of), ErrorCode::kInvalidArgument,
               "got a group of 2 ranks, need the devices of DeviceMesh{0 1 2 3}");
  expect_error(create_error(program_for(2), 2, inputs_of, 0), ErrorCode::kInvalidArgument,
               "got 0 streams, need 1 to 15");
  expect_error(create_error(program_for(2), 2, inputs_of, 16), ErrorCode::kInvalidArgument,
               "got 16 streams, need 1 to 15");
  expect_error(create_error(program_for(2, {}), 2, inputs_of), ErrorCode::kInvalidArgument,
               "lower it with workers_wait");
  expect_error(
      create_error(program_for(2), 2, [](const Tensors& tensors) { return std::vector{tensors.a.view()}; }),
      ErrorCode::kInvalidArgument, "got 1 inputs, need 2");
  const auto as_other_type = [](const Tensors& tensors) {
    auto views = tensors.inputs();
    views[1].dtype = DType::kI32;
    return views;
  };
  expect_error(create_error(program_for(2), 2, as_other_type), ErrorCode::kInvalidArgument,
               "input 1 is i32 [8, 5]");
  const auto with_other_k = [](const Tensors& tensors) {
    auto views = tensors.inputs();
    views[1].sizes = {7, 5};
    return views;
  };
  expect_error(create_error(program_for(2), 2, with_other_k), ErrorCode::kInvalidArgument, "need them equal");
}

// More streams than the pads that the group's user has made have channels.
TEST(ExecutorOfAHostProgram, RefusesMoreStreamsThanThereAreChannels) {
  const Error error = error_on_ranks(2, [&](Rank& rank) -> Result<void> {
    if (auto set = symm::set_signal_pad_size(rank.group, 8 * 4 * 2); !set) return set;
    auto executor = Executor::create(program_for(2), rank.tensors.inputs(), rank.group, rank.device, 2);
    if (!executor) return tl::unexpected(executor.error());
    return {};
  });
  expect_error(error, ErrorCode::kUnsupported, "has 2 channels from 6 on: take at most 1 streams");
}

Error run_error(const std::function<Result<void>(Executor& executor, Rank& rank)>& work) {
  return error_on_ranks(1, [&](Rank& rank) -> Result<void> {
    auto executor = Executor::create(program_for(1), rank.tensors.inputs(), rank.group, rank.device, 2);
    if (!executor) return tl::unexpected(executor.error());
    return work(**executor, rank);
  });
}

TEST(ExecutorOfAHostProgram, RefusesOtherTensors) {
  expect_error(run_error([](Executor& executor, Rank& rank) {
                 auto inputs = rank.tensors.inputs();
                 inputs.pop_back();
                 return executor.run(inputs, rank.tensors.out.view(), rank.stream);
               }),
               ErrorCode::kInvalidArgument, "got 1 inputs, need 2");
  expect_error(run_error([](Executor& executor, Rank& rank) {
                 auto inputs = rank.tensors.inputs();
                 inputs[0] = inputs[0].narrow(2, 0, 2);
                 return executor.run(inputs, rank.tensors.out.view(), rank.stream);
               }),
               ErrorCode::kInvalidArgument, "need f32 [2, 1, 3, 8], contiguous, on cpu:0");
  expect_error(run_error([](Executor& executor, Rank& rank) {
                 return executor.run(rank.tensors.inputs(), rank.tensors.a.view(), rank.stream);
               }),
               ErrorCode::kInvalidArgument, "output 0 is f32 [2, 1, 3, 8]");
}

TEST(ExecutorOfAHostProgram, RefusesAnOutputOverItsInput) {
  expect_error(run_error([](Executor& executor, Rank& rank) {
                 const TensorView over =
                     TensorView::contiguous(rank.tensors.a.view().data, executor.out_sizes(), DType::kF32);
                 return executor.run(rank.tensors.inputs(), over, rank.stream);
               }),
               ErrorCode::kInvalidArgument, "overlap");
}

TEST(ExecutorOfAHostProgram, RefusesAStreamOfAnotherDevice) {
  expect_error(run_error([](Executor& executor, Rank& rank) -> Result<void> {
                 const auto other = open_device({}, rank.group.config()).value();
                 const auto stream = other->create_stream().value();
                 return executor.run(rank.tensors.inputs(), rank.tensors.out.view(), *stream);
               }),
               ErrorCode::kInvalidArgument, "need one of the device of create()");
}

// One rank has other sizes than the others: all hear of it.
TEST(ExecutorOfAHostProgram, IsRefusedWhereRanksDiffer) {
  const Error error = error_on_ranks(2, [&](Rank& rank) -> Result<void> {
    auto inputs = rank.tensors.inputs();
    if (rank.group.rank() == 1) {
      inputs[0].sizes = {2, 1, 2, 8};
      inputs[0].strides = contiguous_strides(inputs[0].sizes);
    }
    auto executor = Executor::create(program_for(2), inputs, rank.group, rank.device, 2);
    if (!executor) return tl::unexpected(executor.error());
    return {};
  });
  EXPECT_EQ(error.code(), ErrorCode::kMismatch) << error.text();
}

}  // namespace
}  // namespace tandem::program::host
