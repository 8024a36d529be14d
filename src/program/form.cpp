#include "program/verify.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::program {

namespace {

Error wrong(const Program& program, const std::string& what) {
  return Error(ErrorCode::kInternal, fmt::format("{}: rank {}: {}", program.name, program.rank, what));
}

bool is_inside(const Program& program, const Operand& operand) {
  if (operand.is_absent()) return true;
  if (operand.root < 0 || operand.root >= static_cast<int>(program.roots.size())) return false;
  const Root& root = program.roots[static_cast<std::size_t>(operand.root)];
  if (operand.dim < 0) return true;
  if (operand.first < 0 || operand.size < 0) return false;
  if (root.sizes.empty()) return true;
  return operand.dim < root.sizes.size() && operand.first + operand.size <= root.sizes[operand.dim];
}

/// Elements of a part of a root that has sizes.
std::optional<std::int64_t> num_elements(const Program& program, const Operand& operand) {
  Dims sizes = program.roots[static_cast<std::size_t>(operand.root)].sizes;
  if (sizes.empty()) return std::nullopt;
  if (operand.dim >= 0) sizes[operand.dim] = operand.size;
  return numel(sizes);
}

Result<void> check_operands(const Program& program, const Step& step) {
  bool is_fine = is_inside(program, step.from) && is_inside(program, step.to) &&
                 is_inside(program, step.bias) && is_inside(program, step.scale);
  if (step.kind == StepKind::kProduct || step.kind == StepKind::kProductScatter) {
    is_fine = step.product >= 0 && step.product < static_cast<int>(program.products.size());
    if (!is_fine) return tl::unexpected(wrong(program, "a step multiplies a product that does not exist"));
    const Product& product = program.products[static_cast<std::size_t>(step.product)];
    for (const Operand* const one : {&product.a, &product.b, &product.out, &product.bias, &product.a_scale,
                                     &product.b_scale, &product.result_scale, &product.addend})
      is_fine = is_fine && is_inside(program, *one);
    if (product.departure.has_value() != (step.kind == StepKind::kProductScatter))
      return tl::unexpected(wrong(program, "a step scatters a product that does not depart, or does not"));
    if (product.telling) is_fine = is_fine && is_inside(program, product.telling->word);
    if (product.departure) {
      is_fine = is_fine && is_inside(program, product.departure->kept) &&
                is_inside(program, product.departure->bias);
    }
  }
  if (!is_fine) return tl::unexpected(wrong(program, "a step reaches beyond its tensors"));
  if (step.kind != StepKind::kCopy && step.kind != StepKind::kPut && step.kind != StepKind::kQuantize)
    return {};
  const auto from = num_elements(program, step.from);
  const auto to = num_elements(program, step.to);
  if (!from || !to || *from == *to) return {};
  return tl::unexpected(
      wrong(program, fmt::format("'{}' takes {} elements to {}", program.to_string(step), *from, *to)));
}

/// Whether each exchange is awaited, once and behind its start.
Result<void> check_exchanges(const Program& program) {
  std::vector<const Step*> started;
  std::vector<bool> is_awaited;
  for (const Step& step : program.steps) {
    if (step.kind == StepKind::kExchange) {
      if (step.exchange != static_cast<int>(started.size()))
        return tl::unexpected(wrong(program, "exchanges are not numbered in their order"));
      started.push_back(&step);
      is_awaited.push_back(false);
    }
    if (step.kind != StepKind::kExchanged) continue;
    const auto number = static_cast<std::size_t>(step.exchange);
    if (number >= started.size() || is_awaited[number] || started[number]->from != step.from ||
        started[number]->to != step.to)
      return tl::unexpected(wrong(program, fmt::format("'{}' is of no exchange", program.to_string(step))));
    is_awaited[number] = true;
  }
  if (std::count(is_awaited.begin(), is_awaited.end(), false) == 0) return {};
  return tl::unexpected(wrong(program, "an exchange is not awaited"));
}

Result<void> check_steps(const Program& program) {
  for (const Step& step : program.steps) {
    if (step.lane < 0 || step.lane >= program.num_lanes || step.other < 0 || step.other >= program.num_lanes)
      return tl::unexpected(wrong(program, fmt::format("a step on lane {} of {}, or for lane {}", step.lane,
                                                       program.num_lanes, step.other)));
    const bool has_peer = step.kind == StepKind::kGet || step.kind == StepKind::kPut ||
                          step.kind == StepKind::kRead || step.kind == StepKind::kWriteWord ||
                          step.kind == StepKind::kAwait;
    if (has_peer && (step.peer < 0 || step.peer >= program.world))
      return tl::unexpected(
          wrong(program, fmt::format("a step for rank {} of {}", step.peer, program.world)));
    TANDEM_TRY(check_operands(program, step));
    if (step.kind == StepKind::kCheck && step.lane == kCurrent)
      return tl::unexpected(wrong(program, "a check for NaN stands on the caller's lane"));
  }
  return {};
}

Result<void> check_roots(const Program& program) {
  for (const Root& root : program.roots) {
    if (is_callers(root.space)) continue;
    const std::int64_t reserved = program.memory.bytes_of(root.space);
    if (root.offset_bytes >= 0 && root.offset_bytes + root.most_bytes <= reserved) continue;
    return tl::unexpected(wrong(program, fmt::format("'{}' ends at byte {}, and {} are reserved", root.name,
                                                     root.offset_bytes + root.most_bytes, reserved)));
  }
  return {};
}

/// Whether resets cover all words and flags that the program looks at or writes, where those count no epochs.
Result<void> check_resets(const Program& program) {
  if (!program.word_value || program.world == 1) return {};
  const auto range_of = [&](RootId id) {
    const Root& root = program.roots[static_cast<std::size_t>(id)];
    return std::pair(root.offset_bytes, root.offset_bytes + root.most_bytes);
  };
  const auto is_reset = [&](RootId id) {
    return id == kNone || std::any_of(program.steps.begin(), program.steps.end(), [&](const Step& step) {
             if (step.kind != StepKind::kReset || step.to.dim >= 0) return false;
             const auto [first, last] = range_of(step.to.root);
             const auto [begin, end] = range_of(id);
             return first <= begin && end <= last;
           });
  };
  bool are_reset = true;
  for (const Step& step : program.steps) {
    if (step.kind == StepKind::kAwait) are_reset = are_reset && is_reset(step.from.root);
    if (step.kind == StepKind::kWriteWord) are_reset = are_reset && is_reset(step.to.root);
  }
  for (const Product& product : program.products) {
    if (product.arrival)
      are_reset = are_reset && is_reset(product.arrival->words.root) && is_reset(product.arrival->flags);
  }
  return are_reset ? Result<void>() : tl::unexpected(wrong(program, "words or flags are not reset"));
}

/// Whether each rank writes the words of its own chunks, and awaits those of the rank that it names.
Result<void> check_words(const Program& program) {
  if (program.num_chunks == 0) return {};
  for (const Step& step : program.steps) {
    const bool awaits = step.kind == StepKind::kAwait;
    if (!awaits && step.kind != StepKind::kWriteWord) continue;
    const Operand& words = awaits ? step.from : step.to;
    const int sender = awaits ? step.peer : program.rank;
    const std::int64_t first = words.first / program.chunks_per_rank;
    const bool is_of_one = words.first + words.size <= (first + 1) * program.chunks_per_rank;
    if (is_of_one && first % program.world == sender) continue;
    return tl::unexpected(wrong(program, fmt::format("'{}' is of words that rank {} does not write",
                                                     program.to_string(step), sender)));
  }
  const std::int64_t first_own = program.rank * program.chunks_per_rank;
  for (const Product& product : program.products) {
    if (!product.telling) continue;
    const Operand& word = product.telling->word;
    if (word.size != 1 || word.first < first_own || word.first >= first_own + program.chunks_per_rank)
      return tl::unexpected(wrong(program, "a product tells by words that the rank does not write"));
  }
  return {};
}

/// Whether a product that begins early stands right behind a reset. A lane that is joined in between would
/// have to be awaited too.
Result<void> check_early_beginnings(const Program& program) {
  std::vector<const Step*> last(static_cast<std::size_t>(program.num_lanes), nullptr);
  for (const Step& step : program.steps) {
    const Lane lane = step.kind == StepKind::kJoin ? step.other : step.lane;
    const Step*& before = last[static_cast<std::size_t>(lane)];
    if (step.kind == StepKind::kProduct) {
      const auto& arrival = program.products[static_cast<std::size_t>(step.product)].arrival;
      if (arrival && arrival->begins_early && (before == nullptr || before->kind != StepKind::kReset))
        return tl::unexpected(
            wrong(program, fmt::format("'{}' does not stand behind a reset", program.to_string(step))));
    }
    before = &step;
  }
  return {};
}

/// Whether the caller's lane has waited for all lanes in the end, itself or by others.
Result<void> check_joined(const Program& program) {
  const auto lanes = static_cast<std::size_t>(program.num_lanes);
  std::vector<Clock> known(lanes, Clock(lanes, 0));
  for (const Step& step : program.steps) {
    const auto lane = static_cast<std::size_t>(step.lane);
    if (step.kind == StepKind::kJoin)
      merge(known[static_cast<std::size_t>(step.other)], known[lane]);
    else
      ++known[lane][lane];
  }
  for (std::size_t lane = 1; lane < lanes; ++lane) {
    if (known[kCurrent][lane] == known[lane][lane]) continue;
    return tl::unexpected(wrong(program, fmt::format("lane {} is not joined to the caller's in the end",
                                                     lane_name(static_cast<Lane>(lane), program.num_lanes))));
  }
  return {};
}

/// The steps of one lane that all ranks take together.
std::vector<std::string> meetings(const Program& program, Lane lane) {
  std::vector<std::string> all;
  for (const Step& step : program.steps) {
    if (step.lane != lane || !is_together(step)) continue;
    all.push_back(step.kind == StepKind::kBarrier          ? fmt::format("barrier {}", step.channel)
                  : step.kind == StepKind::kReset          ? fmt::format("reset and barrier {}", step.channel)
                  : step.kind == StepKind::kAllGather      ? "all_gather"
                  : step.kind == StepKind::kAllReduce      ? "all_reduce"
                  : step.kind == StepKind::kProductScatter ? "product scatter"
                                                           : "reduce_scatter");
  }
  return all;
}

/// What all ranks must have in common.
Result<void> check_alike(const Program& first, const Program& program) {
  const MemoryNeeds& x = first.memory;
  const MemoryNeeds& y = program.memory;
  const bool alike =
      program.num_lanes == first.num_lanes && program.base_channel == first.base_channel &&
      program.chunks_per_rank == first.chunks_per_rank && x.workspace_bytes == y.workspace_bytes &&
      x.inbox_bytes == y.inbox_bytes && x.inbox_words == y.inbox_words && x.inbox_flags == y.inbox_flags &&
      x.kernel_inbox_bytes == y.kernel_inbox_bytes && x.kernel_inbox_words == y.kernel_inbox_words;
  if (!alike) {
    return tl::unexpected(
        wrong(program, "its lanes, channels, chunks, workspace or inbox are not those of rank 0"));
  }
  for (Lane lane = 0; lane < first.num_lanes; ++lane) {
    const auto need = meetings(first, lane);
    const auto got = meetings(program, lane);
    if (got == need) continue;
    const auto at = static_cast<std::size_t>(
        std::mismatch(got.begin(), got.end(), need.begin(), need.end()).first - got.begin());
    return tl::unexpected(wrong(
        program, fmt::format("lane {} meets the other ranks in {}, and in rank 0's program in {}",
                             lane_name(lane, first.num_lanes), at < got.size() ? got[at] : "nothing more",
                             at < need.size() ? need[at] : "nothing more")));
  }
  return {};
}

}  // namespace

Result<void> check_form(std::span<const Program> ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Program& program = ranks[rank];
    if (program.rank != static_cast<int>(rank) || program.world != static_cast<int>(ranks.size()) ||
        program.num_lanes < 1 || program.num_lanes > kMaxLanes) {
      return tl::unexpected(
          wrong(program, fmt::format("program {} of {}, for {} ranks and {} lanes, up to {}", rank,
                                     ranks.size(), program.world, program.num_lanes, kMaxLanes)));
    }
    TANDEM_TRY(check_roots(program));
    TANDEM_TRY(check_steps(program));
    TANDEM_TRY(check_exchanges(program));
    TANDEM_TRY(check_resets(program));
    TANDEM_TRY(check_words(program));
    TANDEM_TRY(check_early_beginnings(program));
    TANDEM_TRY(check_joined(program));
    TANDEM_TRY(check_alike(ranks.front(), program));
  }
  return {};
}

}  // namespace tandem::program
