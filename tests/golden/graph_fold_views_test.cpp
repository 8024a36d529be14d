#include "golden/golden_graphs.hpp"

namespace tandem::graph {
namespace {

using golden::Case;

class FoldViews : public ::testing::TestWithParam<Case> {};

TEST_P(FoldViews, RewritesTheText) {
  golden::expect_rewritten(GetParam(), "fold-views");
}

const std::string kInput = "%a: float32[2, 3, 4] = placeholder\n";

INSTANTIATE_TEST_SUITE_P(
    Graphs, FoldViews,
    ::testing::Values(Case{"reshape_of_a_reshape",
                           kInput + "%b: float32[6, 4] = aten.reshape.default(%a, [6, 4])\n"
                                    "%c: float32[1, 6, 4] = aten.reshape.default(%b, [1, -1, 4])\n"
                                    "%output: (float32[1, 6, 4]) = output([%c])\n",
                           kInput + "%c: float32[1, 6, 4] = aten.reshape.default(%a, [1, -1, 4])\n"
                                    "%output: (float32[1, 6, 4]) = output([%c])\n"},
                      Case{"reshape_there_and_back",
                           kInput + "%b: float32[6, 4] = aten.reshape.default(%a, [6, 4])\n"
                                    "%c: float32[2, 3, 4] = aten.reshape.default(%b, [2, 3, 4])\n"
                                    "%output: (float32[2, 3, 4]) = output([%c])\n",
                           kInput + "%output: (float32[2, 3, 4]) = output([%a])\n"},
                      Case{"reshape_that_others_use",
                           kInput + "%b: float32[6, 4] = aten.reshape.default(%a, [6, 4])\n"
                                    "%c: float32[24] = aten.reshape.default(%b, [24])\n"
                                    "%output: (float32[6, 4], float32[24]) = output([%b, %c])\n",
                           kInput + "%b: float32[6, 4] = aten.reshape.default(%a, [6, 4])\n"
                                    "%c: float32[24] = aten.reshape.default(%a, [24])\n"
                                    "%output: (float32[6, 4], float32[24]) = output([%b, %c])\n"},
                      // The strides differ: the reshape is a copy.
                      Case{"reshape_that_copies",
                           kInput + "%b: float32[3, 2, 4]{4, 12, 1} = aten.permute.default(%a, [1, 0, 2])\n"
                                    "%c: float32[3, 2, 4] = aten.reshape.default(%b, [3, 2, 4])\n"
                                    "%output: (float32[3, 2, 4]) = output([%c])\n",
                           ""},
                      Case{"permute_of_a_permute",
                           kInput + "%b: float32[3, 4, 2]{4, 1, 12} = aten.permute.default(%a, [1, 2, 0])\n"
                                    "%c: float32[3, 2, 4]{4, 12, 1} = aten.permute.default(%b, [0, -1, 1])\n"
                                    "%output: (float32[3, 2, 4]{4, 12, 1}) = output([%c])\n",
                           kInput + "%c: float32[3, 2, 4]{4, 12, 1} = aten.permute.default(%a, [1, 0, 2])\n"
                                    "%output: (float32[3, 2, 4]{4, 12, 1}) = output([%c])\n"},
                      Case{"permute_there_and_back",
                           kInput + "%b: float32[3, 2, 4]{4, 12, 1} = aten.permute.default(%a, [1, 0, 2])\n"
                                    "%c: float32[2, 3, 4] = aten.permute.default(%b, [1, 0, 2])\n"
                                    "%output: (float32[2, 3, 4]) = output([%c])\n",
                           kInput + "%output: (float32[2, 3, 4]) = output([%a])\n"}),
    golden::name_of);

class MergeEqualGathers : public ::testing::TestWithParam<Case> {};

TEST_P(MergeEqualGathers, RewritesTheText) {
  golden::expect_rewritten(GetParam(), "merge-equal-gathers");
}

const std::string kGather =
    "%a: float32[2, 4] = placeholder\n"
    "%g: float32[4, 4] = tandem.all_gather.default(%a, 0, 2, \"0\")\n";

INSTANTIATE_TEST_SUITE_P(
    Graphs, MergeEqualGathers,
    ::testing::Values(Case{"equal_ones",
                           kGather + "%h: float32[4, 4] = tandem.all_gather.default(%a, 0, 2, \"0\")\n"
                                     "%u: float32[4, 4] = my.op(%g, %h)\n"
                                     "%output: (float32[4, 4]) = output([%u])\n",
                           kGather + "%u: float32[4, 4] = my.op(%g, %g)\n"
                                     "%output: (float32[4, 4]) = output([%u])\n"},
                      Case{"along_another_dim",
                           kGather + "%h: float32[2, 8] = tandem.all_gather.default(%a, 1, 2, \"0\")\n"
                                     "%output: (float32[4, 4], float32[2, 8]) = output([%g, %h])\n",
                           ""},
                      Case{"in_another_group",
                           kGather + "%h: float32[4, 4] = tandem.all_gather.default(%a, 0, 2, \"1\")\n"
                                     "%output: (float32[4, 4], float32[4, 4]) = output([%g, %h])\n",
                           ""}),
    golden::name_of);

}  // namespace
}  // namespace tandem::graph
