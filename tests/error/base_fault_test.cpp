#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <tandem/base/fault.hpp>

namespace tandem {
namespace {

TEST(FaultPlan, RefusesWhatCanNotHappen) {
  for (const std::string bad :
       {"produce:0:1:die", "gett:*:*:stop", "barrier:0:1:corrupt", "agree:*:1:corrupt"}) {
    const auto plan = FaultPlan::parse(bad);
    ASSERT_FALSE(plan.has_value()) << bad;
    EXPECT_EQ(plan.error().to_string(),
              "InvalidArgument: fault '" + bad + "': '" + bad.substr(0, bad.find(':')) +
                  "' is no point where that can happen; need put, get, wait, barrier, "
                  "agree or rendezvous, and to corrupt put or get");
  }
}

TEST(FaultPlan, RefusesWhatIsNotOfItsForm) {
  constexpr std::string_view kBad[] = {
      "put",                   // pieces missing
      "put:0",                 //
      "put:0:1",               //
      ":0:1:die",              // no point
      "put::1:die",            // no rank
      "put:-1:1:die",          // a negative rank
      "put:x:1:die",           //
      "put:0x1:1:die",         //
      "put:5000000000:1:die",  // more than an int
      "put:0::die",            // no time
      "put:0:0:die",           // times count from 1
      "put:0:1:explode",       // no such action
      "put:0:1:die:5",         // a time that has no use
      "put:0:1:corrupt:",      //
      "put:0:1:delay",         // a delay of no time
      "put:0:1:delay:",        //
      "put:0:1:delay:*",       //
      "put:0:1:delay:-3",      //
      "put:0:1:delay:5:6",     // too many pieces
      "put:0:1:delay:5 ",      //
      " ",
  };
  for (const std::string_view bad : kBad) {
    const auto plan = FaultPlan::parse(bad);
    ASSERT_FALSE(plan.has_value()) << bad;
    EXPECT_EQ(plan.error().to_string(),
              "InvalidArgument: fault '" + std::string(bad) +
                  "' is not of the form point:rank:nth:action[:ms] with action die, "
                  "stop, delay (needs ms) or corrupt");
  }
}

TEST(FaultPlan, NamesTheBadPieceOfAList) {
  for (const std::string_view list : {"put:0:1:die,get:1:1:dye", "get:1:1:dye,put:0:1:die"}) {
    const auto plan = FaultPlan::parse(list);
    ASSERT_FALSE(plan.has_value()) << list;
    EXPECT_TRUE(plan.error().text().starts_with("fault 'get:1:1:dye' is not")) << plan.error().text();
  }
  const auto trailing = FaultPlan::parse("put:0:1:die,");
  ASSERT_FALSE(trailing.has_value());
  EXPECT_TRUE(trailing.error().text().starts_with("fault '' is not")) << trailing.error().text();
}

}  // namespace
}  // namespace tandem
