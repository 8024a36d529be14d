#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <tandem/backend/backend.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/bootstrap/thread_ranks.hpp>
#include <tandem/symm/symmetric_memory.hpp>
#include <vector>

#include "support/test_devices.hpp"

namespace tandem::testing {

/// What a rank's test program uses.
struct SymmRank {
  Group& group;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;

  [[nodiscard]] int rank() const { return group.rank(); }
  [[nodiscard]] int size() const { return group.size(); }
  /// Waits for the stream.
  [[nodiscard]] Result<void> finish() const { return stream->synchronize(); }
  /// A symmetric tensor; a failure throws, which ends this rank.
  [[nodiscard]] Tensor empty(const Dims& sizes, DType dtype = DType::kF32) const {
    return symm::empty(sizes, dtype, *device).value();
  }
  [[nodiscard]] std::shared_ptr<symm::Handle> meet(const Tensor& tensor) const {
    return symm::rendezvous(tensor, group).value();
  }

  // Memory through the device's own copies, as a GPU's needs it; contiguous views. What streams write must be
  // done.
  template <class T>
  [[nodiscard]] std::vector<T> read(const TensorView& view) const {
    std::vector<T> values(static_cast<std::size_t>(view.size_bytes()) / sizeof(T));
    throw_if_failed(device->copy_to_host(view, values.data()));
    return values;
  }
  template <class T>
  void write(const TensorView& view, const std::vector<T>& values) const {
    throw_if_failed(device->copy_from_host(values.data(), view));
  }
  template <class T>
  void fill(const TensorView& view, T value) const {
    write(view, std::vector<T>(static_cast<std::size_t>(view.size_bytes()) / sizeof(T), value));
  }

 private:
  static void throw_if_failed(const Result<void>& result) {
    if (!result) throw std::runtime_error(result.error().to_string());
  }
};

using SymmProgram = std::function<Result<void>(SymmRank&)>;

/// `program` as one rank of `group`, on a device of its own.
inline Result<void> run_as_rank(Group& group, const SymmProgram& program, const Placement& placement = {}) {
  auto device = open_device(placement.device_of(group.rank()), group.config());
  if (!device) return tl::unexpected(device.error());
  auto stream = (*device)->create_stream();
  if (!stream) return tl::unexpected(stream.error());
  SymmRank rank{group, *std::move(device), *std::move(stream)};
  return program(rank);
}

inline Result<void> run_symm_ranks(const RankCase& ranks, const Config& config, const SymmProgram& program) {
  return run_thread_ranks(ranks.size, config,
                          [&](Group& group) { return run_as_rank(group, program, ranks.placement); });
}

/// On the CPU.
inline Result<void> run_symm_ranks(int size, const Config& config, const SymmProgram& program) {
  return run_symm_ranks(RankCase{{}, size}, config, program);
}

/// Fails the test with the error's text.
inline void expect_ok(const Result<void>& result) {
  EXPECT_TRUE(result) << result.error().to_string();
}

/// The code, and a piece of the text.
template <class T>
void expect_error(const Result<T>& result, ErrorCode code, std::string_view piece) {
  ASSERT_FALSE(result) << "no error, expected " << to_string(code) << " with '" << piece << "'";
  EXPECT_EQ(to_string(result.error().code()), to_string(code)) << result.error().text();
  EXPECT_NE(result.error().text().find(piece), std::string::npos)
      << "'" << piece << "' is not in: " << result.error().text();
}

/// All words of a rank's own pad, which are 0 at rest.
inline void expect_pad_zero(const symm::Handle& handle) {
  const auto pad = handle.get_signal_pad(handle.rank());
  ASSERT_TRUE(pad) << pad.error().to_string();
  std::vector<std::uint32_t> words(static_cast<std::size_t>(pad->numel()));
  expect_ok(handle.device().copy_to_host(*pad, words.data()));
  for (std::size_t i = 0; i < words.size(); ++i) {
    ASSERT_EQ(words[i], 0U) << "rank " << handle.rank() << ", word " << i;
  }
}

}  // namespace tandem::testing
