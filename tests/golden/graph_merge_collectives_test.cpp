#include "golden/golden_graphs.hpp"

namespace tandem::graph {
namespace {

using golden::Case;

class MergeCollectives : public ::testing::TestWithParam<Case> {};

TEST_P(MergeCollectives, RewritesTheText) {
  golden::expect_rewritten(GetParam(), "merge-collectives");
}

const std::string kGather =
    "%g: bfloat16[8, 6] = _c10d_functional.all_gather_into_tensor.default(%a, 2, \"0\")\n"
    "%w: bfloat16[8, 6] = _c10d_functional.wait_tensor.default(%g)\n";
const std::string kPieces =
    "%s: (bfloat16[4, 6], bfloat16[4, 6]) = aten.split.Tensor(%w, 4)\n"
    "%x: bfloat16[4, 6] = \"<built-in function getitem>\"(%s, 0)\n"
    "%y: bfloat16[4, 6] = \"<built-in function getitem>\"(%s, 1)\n";
const std::string kShard = "%a: bfloat16[4, 6] = placeholder\n";
const std::string kWhole = "%p: bfloat16[4, 8] = placeholder\n";
const std::string kScatterLadder =
    "%s: (bfloat16[4, 4]{8, 1}, bfloat16[4, 4]{8, 1}) = aten.split.Tensor(%p, 4, 1)\n"
    "%x: bfloat16[4, 4]{8, 1} = \"<built-in function getitem>\"(%s, 0)\n"
    "%y: bfloat16[4, 4]{8, 1} = \"<built-in function getitem>\"(%s, 1)\n";
const std::string kScatter =
    "%r: bfloat16[4, 4] = _c10d_functional.reduce_scatter_tensor.default(%c, \"avg\", 2, \"0\")\n"
    "%w: bfloat16[4, 4] = _c10d_functional.wait_tensor.default(%r)\n";

INSTANTIATE_TEST_SUITE_P(
    Graphs, MergeCollectives,
    ::testing::Values(
        Case{"gather_of_dim_0", kShard + kGather + "%output: (bfloat16[8, 6]) = output([%w])\n",
             kShard + "%all_gather: bfloat16[8, 6] = tandem.all_gather.default(%a, 0, 2, \"0\")\n"
                      "%output: (bfloat16[8, 6]) = output([%all_gather])\n"},
        Case{"gather_of_the_last_dim",
             kShard + kGather + kPieces +
                 "%c: bfloat16[4, 12] = aten.cat.default([%x, %y], -1)\n"
                 "%output: (bfloat16[4, 12]) = output([%c])\n",
             kShard + "%all_gather: bfloat16[4, 12] = tandem.all_gather.default(%a, 1, 2, \"0\")\n"
                      "%output: (bfloat16[4, 12]) = output([%all_gather])\n"},
        Case{"gather_with_pieces_cast_to_bytes",
             "%a: float8_e4m3fn[4, 6] = placeholder\n"
             "%g: float8_e4m3fn[8, 6] = _c10d_functional.all_gather_into_tensor.default(%a, 2, \"0\")\n"
             "%w: float8_e4m3fn[8, 6] = _c10d_functional.wait_tensor.default(%g)\n"
             "%s: (float8_e4m3fn[4, 6], float8_e4m3fn[4, 6]) = aten.split.Tensor(%w, 4)\n"
             "%x: float8_e4m3fn[4, 6] = \"<built-in function getitem>\"(%s, 0)\n"
             "%y: float8_e4m3fn[4, 6] = \"<built-in function getitem>\"(%s, 1)\n"
             "%bx: uint8[4, 6] = aten.view.dtype(%x, <torch.uint8>)\n"
             "%by: uint8[4, 6] = aten.view.dtype(%y, <torch.uint8>)\n"
             "%c: uint8[4, 12] = aten.cat.default([%bx, %by], 1)\n"
             "%v: float8_e4m3fn[4, 12] = aten.view.dtype(%c, <torch.float8_e4m3fn>)\n"
             "%output: (float8_e4m3fn[4, 12]) = output([%v])\n",
             "%a: float8_e4m3fn[4, 6] = placeholder\n"
             "%all_gather: float8_e4m3fn[4, 12] = tandem.all_gather.default(%a, 1, 2, \"0\")\n"
             "%output: (float8_e4m3fn[4, 12]) = output([%all_gather])\n"},
        // The wait's order is needed too, so the ladder stays.
        Case{"gather_used_in_both_orders",
             kShard + kGather + kPieces +
                 "%c: bfloat16[4, 12] = aten.cat.default([%x, %y], 1)\n"
                 "%output: (bfloat16[8, 6], bfloat16[4, 12]) = output([%w, %c])\n",
             kShard + "%all_gather: bfloat16[8, 6] = tandem.all_gather.default(%a, 0, 2, \"0\")\n"
                      "%s: (bfloat16[4, 6], bfloat16[4, 6]) = aten.split.Tensor(%all_gather, 4)\n"
                      "%x: bfloat16[4, 6] = \"<built-in function getitem>\"(%s, 0)\n"
                      "%y: bfloat16[4, 6] = \"<built-in function getitem>\"(%s, 1)\n"
                      "%c: bfloat16[4, 12] = aten.cat.default([%x, %y], 1)\n"
                      "%output: (bfloat16[8, 6], bfloat16[4, 12]) = output([%all_gather, %c])\n"},
        // Not the order of the ranks: no gather along dim 1.
        Case{"gather_with_pieces_swapped",
             kShard + kGather + kPieces +
                 "%c: bfloat16[4, 12] = aten.cat.default([%y, %x], 1)\n"
                 "%output: (bfloat16[4, 12]) = output([%c])\n",
             kShard + "%all_gather: bfloat16[8, 6] = tandem.all_gather.default(%a, 0, 2, \"0\")\n"
                      "%s: (bfloat16[4, 6], bfloat16[4, 6]) = aten.split.Tensor(%all_gather, 4)\n"
                      "%x: bfloat16[4, 6] = \"<built-in function getitem>\"(%s, 0)\n"
                      "%y: bfloat16[4, 6] = \"<built-in function getitem>\"(%s, 1)\n"
                      "%c: bfloat16[4, 12] = aten.cat.default([%y, %x], 1)\n"
                      "%output: (bfloat16[4, 12]) = output([%c])\n"},
        Case{"scatter_of_dim_0",
             "%c: bfloat16[8, 4] = placeholder\n" + kScatter + "%output: (bfloat16[4, 4]) = output([%w])\n",
             "%c: bfloat16[8, 4] = placeholder\n"
             "%reduce_scatter: bfloat16[4, 4] = tandem.reduce_scatter.default(%c, \"avg\", 0, 2, \"0\")\n"
             "%output: (bfloat16[4, 4]) = output([%reduce_scatter])\n"},
        // Saved for backward before its wait.
        Case{"scatter_of_dim_1_that_is_saved",
             kWhole + kScatterLadder + "%c: bfloat16[8, 4] = aten.cat.default([%x, %y])\n" + kScatter +
                 "%output: (bfloat16[4, 4], bfloat16[4, 4]) = output([%w, %r])\n",
             kWhole +
                 "%reduce_scatter: bfloat16[4, 4] = tandem.reduce_scatter.default(%p, \"avg\", 1, 2, \"0\")\n"
                 "%output: (bfloat16[4, 4], bfloat16[4, 4]) = output([%reduce_scatter, %reduce_scatter])\n"},
        // A piece is needed elsewhere, so the ladder stays.
        Case{"scatter_with_a_piece_used",
             kWhole + kScatterLadder + "%c: bfloat16[8, 4] = aten.cat.default([%x, %y])\n" + kScatter +
                 "%output: (bfloat16[4, 4], bfloat16[4, 4]{8, 1}) = output([%w, %x])\n",
             kWhole + kScatterLadder +
                 "%c: bfloat16[8, 4] = aten.cat.default([%x, %y])\n"
                 "%reduce_scatter: bfloat16[4, 4] = tandem.reduce_scatter.default(%c, \"avg\", 0, 2, \"0\")\n"
                 "%output: (bfloat16[4, 4], bfloat16[4, 4]{8, 1}) = output([%reduce_scatter, %x])\n"},
        // What uses it before its wait is not the output: nothing is known of it.
        Case{"scatter_used_before_its_wait",
             "%c: bfloat16[8, 4] = placeholder\n" + kScatter +
                 "%u: bfloat16[4, 4] = my.op(%r)\n%output: (bfloat16[4, 4], bfloat16[4, 4]) = output([%w, "
                 "%u])\n",
             ""}),
    golden::name_of);

}  // namespace
}  // namespace tandem::graph
