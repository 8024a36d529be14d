#pragma once

#include <functional>
#include <memory>
#include <string>
#include <tandem/tandem.hpp>
#include <utility>
#include <vector>

#include "support/symm_rank.hpp"

namespace tandem::testing {

/// A tensor that a call takes.
struct Operand {
  std::string name;  ///< in errors
  Dims sizes;
  DType dtype = DType::kF32;
  bool is_output = false;
  bool any_strides = true;
  bool is_pointer = false;  ///< its layout is not the caller's to say
};

/// What a call works with: operands in its order, all inside one symmetric block.
struct CallSite {
  SymmRank& rank;
  std::shared_ptr<symm::Handle> handle;  ///< of the block, from its start on
  std::vector<TensorView> views;
  /// Elements from the start of the block to views[idx].
  [[nodiscard]] std::int64_t offset_of(std::size_t idx) const;
};

/// A public call that writes memory of its caller's.
struct WritingCall {
  std::string name;          ///< of the function
  std::string header;        ///< under include/tandem
  std::string variant = {};  ///< "" or what sets it apart from others of that name
  std::vector<Operand> operands;
  std::function<Result<void>(CallSite&)> make;
  /// Pairs of an output and an input of which one may be the other, or the rank's own part of it.
  std::vector<std::pair<std::string, std::string>> in_place = {};
  enum class Needs { kNothing, kOtherRanks, kHostMemory } needs = Needs::kNothing;
  /// Copy engines read its inputs where there are any; they take no repeated ones.
  bool reads_by_engines = false;
};

/// All there are, with the operands of a rank of `world`; a test holds this against the headers.
[[nodiscard]] std::vector<WritingCall> writing_calls(int world);

}  // namespace tandem::testing
