#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "program/program.hpp"

namespace tandem::program {

/// Roots of scratch and workspace start at multiples of this.
inline constexpr std::int64_t kRootAlignment = 128;
[[nodiscard]] constexpr std::int64_t aligned_to_root(std::int64_t num_bytes) {
  return (num_bytes + kRootAlignment - 1) / kRootAlignment * kRootAlignment;
}

/// Writes a program down: roots first, then steps in the order in which they are enqueued.
class Builder {
 public:
  Builder(std::string name, int rank, int world, int num_lanes, int base_channel) {
    program_.name = std::move(name);
    program_.rank = rank;
    program_.world = world;
    program_.num_lanes = num_lanes;
    program_.base_channel = base_channel;
  }
  [[nodiscard]] int rank() const { return program_.rank; }
  [[nodiscard]] int world() const { return program_.world; }
  [[nodiscard]] int num_lanes() const { return program_.num_lanes; }
  [[nodiscard]] MemoryNeeds& memory() { return program_.memory; }
  [[nodiscard]] const Root& root(RootId id) const { return program_.roots[static_cast<std::size_t>(id)]; }

  /// A tensor that the call binds.
  RootId caller(std::string name, Space space = Space::kCaller) {
    return add({.name = std::move(name), .space = space});
  }
  /// One that the call reads, and in which checks look for NaN. `front_dim`: see Root.
  RootId input(std::string name, Checked checked, int front_dim = 0) {
    return add(
        {.name = std::move(name), .checked = checked, .front_dim = static_cast<std::int8_t>(front_dim)});
  }
  /// A tensor of its own in scratch memory, behind what is there.
  RootId scratch(std::string name, const Dims& sizes, DType dtype);
  /// So many bytes of scratch memory; returns where they begin.
  std::int64_t reserve_scratch(std::int64_t num_bytes);
  /// A tensor at a place of scratch memory or of the workspace that may be others' too.
  RootId at(Space space, std::int64_t offset_bytes, std::string name, const Dims& sizes, DType dtype);
  /// A tensor in scratch memory whose sizes the call binds.
  RootId bound_scratch(std::string name, std::int64_t offset_bytes, std::int64_t most_bytes);

  // Steps. Labels: see Step::label.
  using Label = std::optional<trace::StepKind>;
  void copy(Lane lane, const Operand& from, const Operand& to, Label label = {}, int peer = -1);
  void get(Lane lane, int peer, const Operand& from, const Operand& to, Label label = {}, int slot = -1);
  void read(Lane lane, int peer, const Operand& from, const Operand& to);
  /// `told`: the word of rank 0.
  void cross(Lane lane, const Operand& told, int parts, const Operand& arrived = {}, int slot = -1);
  void put(Lane lane, int peer, const Operand& from, const Operand& to, Label label = {}, int slot = -1);
  void reset(Lane lane, const Operand& words, int channel);
  void write_word(Lane lane, int peer, const Operand& word, Label label = {}, int slot = -1);
  void await(Lane lane, int peer, const Operand& words, Label label = {}, int slot = -1);
  void barrier(Lane lane, int channel);
  /// `waiter` waits for all that is on `lane` so far.
  void join(Lane lane, Lane waiter);
  void nap(Lane lane);
  /// `peer`, `slot`: for the trace.
  void product(Lane lane, const Product& product, Label label = {}, int peer = -1, int slot = -1);
  /// Of a product with a departure.
  void product_scatter(Lane lane, const Product& product);
  void sum(Lane lane, const Operand& from, const Operand& to, coll::ReduceOp op, const Operand& bias = {});
  void sum_ranks(Lane lane, const Operand& from, const Operand& to, coll::ReduceOp op,
                 const Operand& bias = {});
  void cast(Lane lane, const Operand& from, const Operand& to, const Operand& bias = {});
  void quantize(Lane lane, const Operand& from, const Operand& to, const Operand& scale, Label label = {},
                int peer = -1);
  void all_gather(Lane lane, const Operand& from, const Operand& to);
  void reduce_scatter(Lane lane, const Operand& from, const Operand& to, coll::ReduceOp op,
                      const Operand& bias = {});
  void all_reduce(Lane lane, const Operand& from, const Operand& to, coll::ReduceOp op,
                  const Operand& bias = {});

  /// An exchange with ranks of other hosts; returns it for exchanged(). `beside_product`: see Step.
  std::size_t exchange(Lane lane, int destination, const Operand& from, int source, const Operand& to,
                       bool beside_product = false);
  void exchanged(Lane lane, std::size_t exchange);

  /// See Program::word_value.
  void set_word_value(std::uint32_t value) { program_.word_value = value; }
  /// See Program::chunks_per_rank.
  void set_chunks(std::int64_t count, std::int64_t per_rank) {
    program_.num_chunks = count;
    program_.chunks_per_rank = per_rank;
  }

  [[nodiscard]] Program take() { return std::move(program_); }

 private:
  RootId add(Root root);
  Program program_;
};

}  // namespace tandem::program
