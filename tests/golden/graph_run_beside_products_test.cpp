#include "golden/golden_graphs.hpp"

// Products here take 785 us by the cost model, the gather of %w and the scatter of %y 375 us beside them.

namespace tandem::graph {
namespace {

using golden::Case;

class RunBesideProducts : public ::testing::TestWithParam<Case> {};

TEST_P(RunBesideProducts, RewritesTheText) {
  golden::expect_rewritten(GetParam(), "run-beside-products", {.low_contention = true});
}

TEST_P(RunBesideProducts, DoesNothingUnlessItIsAskedFor) {
  golden::expect_rewritten({GetParam().name, GetParam().before, ""}, "run-beside-products");
}

const std::string kInputs =
    "%x: bfloat16[4096, 8192] = placeholder\n"
    "%a: bfloat16[8192, 8192] = placeholder\n"
    "%b: bfloat16[8192, 4096] = placeholder\n"
    "%w: bfloat16[2048, 4096] = placeholder\n"
    "%y: bfloat16[4096, 4096] = placeholder\n";
const std::string kP = "%p: bfloat16[4096, 8192] = aten.mm.default(%x, %a)\n";
const std::string kQ = "%q: bfloat16[4096, 8192] = aten.mm.default(%p, %a)\n";
const std::string kGather =
    "%g: bfloat16[4096, 4096] = _c10d_functional.all_gather_into_tensor.default(%w, 2, \"0\")\n";
const std::string kBeside =
    "%g: bfloat16[4096, 4096] = symm_mem._low_contention_all_gather.default(%w, \"0\")\n";
const std::string kWait = "%u: bfloat16[4096, 4096] = _c10d_functional.wait_tensor.default(%g)\n";
const std::string kUse = "%z: bfloat16[4096, 4096] = aten.mm.default(%y, %u)\n";
const std::string kEnd = "%output: (bfloat16[4096, 8192], bfloat16[4096, 4096]) = output([%p, %z])\n";
const std::string kScatter =
    "%r: bfloat16[2048, 4096] = _c10d_functional.reduce_scatter_tensor.default(%y, \"avg\", 2, \"0\")\n";
const std::string kScatterBeside =
    "%r: bfloat16[2048, 4096] = symm_mem._low_contention_reduce_scatter.default(%y, \"avg\", \"0\")\n";
const std::string kScatterWait = "%v: bfloat16[2048, 4096] = _c10d_functional.wait_tensor.default(%r)\n";
const std::string kScatterEnd = "%output: (bfloat16[4096, 8192], bfloat16[2048, 4096]) = output([%p, %v])\n";
const std::string kOther =
    "%s: bfloat16[4096, 8192] = _c10d_functional.all_reduce.default(%p, \"sum\", \"7\")\n"
    "%t: bfloat16[4096, 8192] = _c10d_functional.wait_tensor.default(%s)\n";
const std::string kCast =
    "%c: bfloat16[2048, 4096] = prims.convert_element_type.default(%e, <torch.bfloat16>)\n";

std::string with(std::string text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << text;
  return text.replace(at, from.size(), to);
}

INSTANTIATE_TEST_SUITE_P(
    Graphs, RunBesideProducts,
    ::testing::Values(
        Case{"gather_starts_before_a_product", kInputs + kP + kGather + kWait + kUse + kEnd,
             kInputs + kBeside + kP + kWait + kUse + kEnd},
        Case{"no_earlier_than_it_has_to", kInputs + kP + kQ + kGather + kWait + kUse + kEnd,
             kInputs + kP + kBeside + kQ + kWait + kUse + kEnd},
        Case{"early_start_stays", kInputs + kGather + kP + kQ + kWait + kUse + kEnd,
             kInputs + kBeside + kP + kQ + kWait + kUse + kEnd},
        Case{"waits_before_the_first_use", kInputs + kGather + kWait + kP + kUse + kEnd,
             kInputs + kBeside + kP + kWait + kUse + kEnd},
        Case{"scatter", kInputs + kScatter + kScatterWait + kP + kScatterEnd,
             kInputs + kScatterBeside + kP + kScatterWait + kScatterEnd},
        Case{"views_wait_with_it",
             kInputs + kGather + kWait +
                 "%h: bfloat16[4096, 4096]{1, 4096} = aten.permute.default(%u, [1, 0])\n" + kP +
                 with(kUse, "%u", "%h") + kEnd,
             kInputs + kBeside + kP + kWait +
                 "%h: bfloat16[4096, 4096]{1, 4096} = aten.permute.default(%u, [1, 0])\n" +
                 with(kUse, "%u", "%h") + kEnd},
        Case{"what_prepares_its_input_starts_with_it",
             "%e: float32[2048, 4096] = placeholder\n" + kInputs + kP + kCast + with(kGather, "%w", "%c") +
                 kWait + kUse + kEnd,
             "%e: float32[2048, 4096] = placeholder\n" + kInputs + kCast + with(kBeside, "%w", "%c") + kP +
                 kWait + kUse + kEnd},
        Case{"input_that_others_use_too",
             "%e: float32[2048, 4096] = placeholder\n" + kInputs + kP + kCast + with(kGather, "%w", "%c") +
                 kWait + kUse + with(kEnd, "%p", "%c").replace(9, 20, "(bfloat16[2048, 4096"),
             ""},
        Case{"starts_behind_other_communication",
             kInputs + kGather + kP + kOther + kQ + kWait + kUse +
                 "%output: (bfloat16[4096, 8192], bfloat16[4096, 4096]) = output([%t, %z])\n",
             kInputs + kP + kOther + kBeside + kQ + kWait + kUse +
                 "%output: (bfloat16[4096, 8192], bfloat16[4096, 4096]) = output([%t, %z])\n"},
        Case{"two_have_products_of_their_own",
             kInputs + kScatter + kScatterWait + kP + kQ + kGather + kWait + kUse +
                 "%output: (bfloat16[2048, 4096], bfloat16[4096, 4096]) = output([%v, %z])\n",
             kInputs + kScatter + kScatterWait + kP + kBeside + kQ + kWait + kUse +
                 "%output: (bfloat16[2048, 4096], bfloat16[4096, 4096]) = output([%v, %z])\n"},
        Case{"other_communication_beside_too_few_products",
             kInputs + kP + kOther + kGather + kWait + kUse +
                 "%output: (bfloat16[4096, 8192], bfloat16[4096, 4096]) = output([%t, %z])\n",
             ""},
        Case{"unknown_op_in_the_way",
             kInputs + kP + "%o: bfloat16[4096, 8192] = my.op.default(%p)\n" + kGather + kWait + kUse + kEnd,
             ""},
        Case{"too_few_products", kInputs + kGather + kWait + kUse + with(kEnd, "%p", "%x"), ""},
        Case{"too_few_bytes",
             with(kInputs, "%w: bfloat16[2048, 4096]", "%w: bfloat16[64, 4096]") + kP +
                 with(kGather, "[4096, 4096]", "[128, 4096]") + with(kWait, "[4096, 4096]", "[128, 4096]") +
                 "%output: (bfloat16[4096, 8192], bfloat16[128, 4096]) = output([%p, %u])\n",
             ""},
        Case{"another_group", kInputs + kP + with(kGather, "\"0\"", "\"7\"") + kWait + kUse + kEnd, ""},
        Case{"another_reduction",
             kInputs + with(kScatter, "\"avg\"", "\"max\"") + kScatterWait + kP + kScatterEnd, ""},
        Case{"waited_for_twice",
             kInputs + kP + kGather + kWait + with(kWait, "%u", "%k") + kUse +
                 "%output: (bfloat16[4096, 4096], bfloat16[4096, 4096]) = output([%k, %z])\n",
             ""}),
    golden::name_of);

}  // namespace
}  // namespace tandem::graph
