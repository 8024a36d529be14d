#include <array>
#include <tandem/graph/fuse.hpp>

namespace tandem::graph {
namespace {

struct Entry {
  std::string_view name;
  std::string_view sentence;
  bool leaves_legal_pair = false;
};

// In the order of Reason.
constexpr std::array<Entry, kNumReasons> kEntries = {{
    {"kNoProduct", "no product takes what is gathered"},
    {"kBatchedProduct", "its product is one of a batch of matrices, each by another one"},
    {"kRightOperand", "it is only a right operand: the gathered dim is summed, or N"},
    {"kTransposedOperand", "it is only used transposed: the gathered dim is summed"},
    {"kBiasOperand", "it is only a bias"},
    {"kScaleOfWhole", "the scale is computed from all of what is gathered"},
    {"kDependentOperand", "another operand of the product depends on what is gathered"},
    {"kNoProducer", "no product makes what is summed over the ranks"},
    {"kReduction", "it reduces with neither sum nor mean"},
    {"kProductTaken", "another fused op computes its product"},
    {"kProductUsed", "one of several products is used elsewhere too, and would be computed twice", true},
    {"kMixedTypes", "tensors of different types are summed"},
    {"kReshape", "a reshape mixes rows with columns"},
    {"kOpBetween", "an op stands between it and the product"},
    {"kBlocks", "slices take blocks of it that are not the ranks' shards"},
    {"kFactors", "what the product adds is no row, or in f16 it has factors", true},
    {"kOtherGroup", "the program is fused for another group; capture with group= to fuse this one"},
    {"kOpaqueBetween", "an unknown op is in the way: nothing is moved across it"},
    {"kSymbolicSizes", "sizes that the program does not know have no name where the op would stand", true},
    {"kUnusualForm", "it is not followed by one wait"},
    {"kUnsupportedType", "there is no product of this type, or by such scales"},
    {"kNoFusedOp", "no fused op has such a collective"},
    {"kNotProfitable", "the cost model expects no gain"},
}};

const Entry& entry_of(Reason reason) {
  return kEntries[static_cast<std::size_t>(reason)];
}

}  // namespace

std::string_view to_string(Reason reason) {
  return entry_of(reason).name;
}

std::string_view describe(Reason reason) {
  return entry_of(reason).sentence;
}

bool leaves_legal_pair(Reason reason) {
  return entry_of(reason).leaves_legal_pair;
}

std::string_view to_string(CollectiveReport::Kind kind) {
  constexpr std::array<std::string_view, 5> kNames = {"all_gather", "reduce_scatter", "all_reduce",
                                                      "all_to_all", "broadcast"};
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace tandem::graph
