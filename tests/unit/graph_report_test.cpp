#include <gtest/gtest.h>

#include <string>
#include <tandem/graph/fuse.hpp>
#include <tandem/graph/text.hpp>

namespace tandem::graph {
namespace {

constexpr std::string_view kBig = R"(graph world 8 group "0" source ""
%a: bfloat16[512, 3584] = placeholder
%b: bfloat16[3584, 8192] = placeholder
%g: bfloat16[4096, 3584] = tandem.all_gather.default(%a, 0, 8, "0")
%p: bfloat16[4096, 8192] = aten.mm.default(%g, %b)
%u: bfloat16[4096, 8192] = aten.relu.default(%p)
%r: bfloat16[512, 8192] = tandem.reduce_scatter.default(%u, "sum", 0, 8, "0")
%output: (bfloat16[512, 8192]) = output([%r])
)";

constexpr std::string_view kBigJson = R"json({
  "schema": 1,
  "collectives": [
    {
      "node": "g",
      "kind": "all_gather",
      "fused_into": "fused_all_gather_matmul",
      "num_products": 1,
      "products_left": [],
      "reason": null,
      "detail": "",
      "runs_beside": null,
      "is_legal": false,
      "bytes": 25690112,
      "saved_us": 12.3
    },
    {
      "node": "r",
      "kind": "reduce_scatter",
      "fused_into": null,
      "num_products": 0,
      "products_left": [],
      "reason": "kOpBetween",
      "detail": "u (aten.relu.default)",
      "runs_beside": null,
      "is_legal": false,
      "bytes": 58720256,
      "saved_us": 0.0
    }
  ],
  "fused": {
    "symm_mem.fused_all_gather_matmul.default": 1
  }
}
)json";

FuseReport report_of(std::string_view text, const FuseOptions& options = {}) {
  auto graph = parse_text(text);
  EXPECT_TRUE(graph) << graph.error().to_string();
  auto report = fuse(*graph, options);
  EXPECT_TRUE(report) << report.error().to_string();
  return *std::move(report);
}

TEST(FuseReport, CountsBytesAndTime) {
  const FuseReport report = report_of(kBig);
  ASSERT_EQ(report.collectives.size(), 2u);
  const CollectiveReport& gather = report.collectives[0];
  EXPECT_EQ(gather.bytes, std::int64_t{7} * 512 * 3584 * 2);
  EXPECT_GT(gather.saved_us, 0.0);
  const CollectiveReport& scatter = report.collectives[1];
  EXPECT_EQ(scatter.bytes, std::int64_t{7} * 512 * 8192 * 2);
  EXPECT_EQ(scatter.saved_us, 0.0);
  EXPECT_EQ(scatter.detail, "u (aten.relu.default)");
  EXPECT_EQ(report.fused.at("symm_mem.fused_all_gather_matmul.default"), 1);
}

TEST(FuseReport, JsonHasEveryKey) {
  FuseReport report = report_of(kBig);
  report.collectives[0].saved_us = 12.34;
  EXPECT_EQ(to_json(report), kBigJson);
}

TEST(FuseReport, TheTableSaysItLoudly) {
  FuseReport report = report_of(kBig);
  EXPECT_EQ(to_table(report).find("NOTHING"), std::string::npos);
  EXPECT_NE(to_table(report).find("1 collective in symm_mem.fused_all_gather_matmul.default"),
            std::string::npos);
  report.fused.clear();
  EXPECT_NE(to_table(report).find("NOTHING WAS FUSED"), std::string::npos);
}

TEST(FuseReport, SaysHowManyOfHowManyProducts) {
  const FuseReport report = report_of(R"(graph world 2 group "0" source ""
%a: bfloat16[4, 8] = placeholder
%b: bfloat16[8, 6] = placeholder
%x: bfloat16[6, 8] = placeholder
%g: bfloat16[8, 8] = tandem.all_gather.default(%a, 0, 2, "0")
%p: bfloat16[8, 6] = aten.mm.default(%g, %b)
%q: bfloat16[8, 6] = aten.mm.default(%g, %b)
%t: bfloat16[8, 8]{1, 8} = aten.permute.default(%g, [1, 0])
%w: bfloat16[6, 8] = aten.mm.default(%x, %t)
%output: (bfloat16[8, 6], bfloat16[8, 6], bfloat16[6, 8]) = output([%p, %q, %w])
)");
  const CollectiveReport& gather = report.collectives.at(0);
  EXPECT_EQ(gather.num_products, 2);
  EXPECT_EQ(gather.products_left, std::vector<std::string>{"w (aten.mm.default)"});
  EXPECT_NE(to_table(report).find("fused into fused_all_gather_matmul with 2 of 3 products\n"),
            std::string::npos);
  EXPECT_EQ(to_table(report_of(kBig)).find(" products"), std::string::npos);
}

TEST(FuseReport, CostKeepsWhatGains) {
  EXPECT_EQ(report_of(kBig, {.strict = false, .cost = true, .share_maxima = false}).fused.size(), 1u);
}

TEST(FuseReport, SaysWhatRunsBesideProducts) {
  constexpr std::string_view kText = R"(graph world 2 group "0" source ""
%x: bfloat16[4096, 8192] = placeholder
%a: bfloat16[8192, 8192] = placeholder
%w: bfloat16[2048, 4096] = placeholder
%s: bfloat16[2, 4096] = placeholder
%h: bfloat16[4, 4096] = _c10d_functional.all_gather_into_tensor.default(%s, 2, "0")
%v: bfloat16[4, 4096] = _c10d_functional.wait_tensor.default(%h)
%p: bfloat16[4096, 8192] = aten.mm.default(%x, %a)
%g: bfloat16[4096, 4096] = _c10d_functional.all_gather_into_tensor.default(%w, 2, "0")
%u: bfloat16[4096, 4096] = _c10d_functional.wait_tensor.default(%g)
%output: (bfloat16[4096, 8192], bfloat16[4096, 4096], bfloat16[4, 4096]) = output([%p, %u, %v])
)";
  auto graph = parse_text(kText);
  ASSERT_TRUE(graph) << graph.error().to_string();
  const auto report = fuse(*graph, {.low_contention = true});
  ASSERT_TRUE(report) << report.error().to_string();
  const CollectiveReport& beside = report->collectives.at(1);
  EXPECT_EQ(beside.runs_beside, "g");
  EXPECT_EQ(beside.reason, Reason::kNoProduct);
  EXPECT_EQ(report->collectives.at(0).runs_beside, std::nullopt) << "too small";
  EXPECT_NE(to_table(*report).find("; runs beside products as g\n"), std::string::npos) << to_table(*report);
  EXPECT_NE(to_json(*report).find("\"runs_beside\": \"g\""), std::string::npos);
  EXPECT_EQ(report_of(kText).collectives.at(1).runs_beside, std::nullopt) << "nobody asked";
}

std::string strict_error(std::string_view text) {
  auto graph = parse_text(text);
  EXPECT_TRUE(graph) << graph.error().to_string();
  const auto report = fuse(*graph, {.strict = true, .cost = false, .share_maxima = false});
  return report ? "ok" : report.error().to_string();
}

TEST(Strict, IsContentWhereAllLegalPairsAreFused) {
  EXPECT_EQ(strict_error(kBig), "ok");
}

TEST(Strict, ComplainsWhenNothingIsFused) {
  EXPECT_EQ(
      strict_error(R"(graph world 2 group "0" source ""
%a: bfloat16[4, 8] = placeholder
%g: bfloat16[8, 8] = tandem.all_gather.default(%a, 0, 2, "0")
%r: bfloat16[4, 8] = tandem.reduce_scatter.default(%g, "sum", 0, 2, "0")
%output: (bfloat16[4, 8]) = output([%r])
)"),
      "Unsupported: graph: NOTHING WAS FUSED: g kNoProduct; r kNoProducer g (tandem.all_gather.default)");
  EXPECT_EQ(strict_error(R"(graph world 2 group "0" source ""
%a: bfloat16[4, 8] = placeholder
%output: (bfloat16[4, 8]) = output([%a])
)"),
            "Unsupported: graph: NOTHING WAS FUSED: there is no collective");
}

TEST(Strict, ComplainsWhenALegalPairIsLeft) {
  EXPECT_EQ(strict_error(R"(graph world 2 group "0" source ""
%a: bfloat16[4, 8] = placeholder
%b: bfloat16[8, 6] = placeholder
%c: bfloat16[8, 1] = placeholder
%g: bfloat16[8, 8] = tandem.all_gather.default(%a, 0, 2, "0")
%p: bfloat16[8, 6] = aten.mm.default(%g, %b)
%q: bfloat16[8, 6] = aten.mm.default(%g, %b)
%x: bfloat16[8, 8] = aten.relu.default(%g)
%s: bfloat16[8, 6] = aten.addmm.default(%c, %x, %b)
%r: bfloat16[4, 6] = tandem.reduce_scatter.default(%s, "sum", 0, 2, "0")
%output: (bfloat16[8, 6], bfloat16[8, 6], bfloat16[4, 6]) = output([%p, %q, %r])
)"),
            "Unsupported: graph: a pair that could be fused was left: r kFactors s (aten.addmm.default)");
}

TEST(Strict, NamesOnlyLegalPairsWhereSomethingIsFused) {
  // A permute that could be taken of the shard; r cannot be fused.
  EXPECT_EQ(strict_error(R"(graph world 2 group "0" source ""
%a: bfloat16[4, 8] = placeholder
%b: bfloat16[8, 6] = placeholder
%c: bfloat16[8, 4] = placeholder
%g: bfloat16[8, 8] = tandem.all_gather.default(%a, 0, 2, "0")
%p: bfloat16[8, 6] = aten.mm.default(%g, %b)
%h: bfloat16[8, 8] = tandem.all_gather.default(%c, 1, 2, "0")
%t: bfloat16[8, 8]{1, 8} = aten.permute.default(%h, [1, 0])
%q: bfloat16[8, 6] = aten.mm.default(%t, %b)
%u: bfloat16[8, 6] = aten.relu.default(%q)
%r: bfloat16[4, 6] = tandem.reduce_scatter.default(%u, "sum", 0, 2, "0")
%output: (bfloat16[8, 6], bfloat16[4, 6]) = output([%p, %r])
)"),
            "Unsupported: graph: a pair that could be fused was left: h kOpBetween t (aten.permute.default)");
}

}  // namespace
}  // namespace tandem::graph
