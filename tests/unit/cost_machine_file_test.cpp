// Machine files: what they hold comes back, and what is wrong with one is said.
#include <gtest/gtest.h>

#include <string>
#include <tandem/cost/machine_file.hpp>

#include "cost/machine_rates.hpp"

namespace tandem::cost {
namespace {

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const auto at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

void expect_refused(const std::string& text, const std::string& reason) {
  const auto machine = parse_machine(text);
  ASSERT_FALSE(machine) << reason;
  EXPECT_EQ(machine.error().code(), ErrorCode::kParse);
  EXPECT_NE(machine.error().text().find(reason), std::string::npos) << machine.error().text();
}

TEST(MachineFile, ComesBackAsItWas) {
  Machine machine = reference_machine();
  machine.find("link_bytes_per_us")->value = 123456.5;
  machine.find("barrier_us")->source = "a \"quoted\" source";
  const auto again = parse_machine(to_text(machine));
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(to_text(*again), to_text(machine));
  EXPECT_EQ(again->find("link_bytes_per_us")->value, 123456.5);
  EXPECT_EQ(again->find("barrier_us")->source, "a \"quoted\" source");
}

TEST(MachineFile, TheReferenceIsTheMachineOfAuto) {
  const auto gpu = gpu_rates_of(reference_machine());
  ASSERT_TRUE(gpu);
  EXPECT_EQ(gpu->multiprocessors, kH200.multiprocessors);
  EXPECT_EQ(gpu->vendor.begin_us, kH200.vendor.begin_us);
  EXPECT_EQ(gpu->piece_bytes_per_us, kH200.piece_bytes_per_us);
  EXPECT_EQ(gpu->gather.slowness_of_a_peer, kH200.gather.slowness_of_a_peer);
  EXPECT_EQ(gpu->cut_us, kH200.cut_us);
}

TEST(MachineFile, EveryRateIsTakenFromTheFile) {
  for (const std::string_view name : machine_rate_names()) {
    Machine machine = reference_machine();
    machine.find(name)->value = 7;
    const auto changed = gpu_rates_of(machine);
    ASSERT_TRUE(changed);
    int differ = 0;
    const auto reference = *gpu_rates_of(reference_machine());
    for (const auto& [x, y] : {std::pair{changed->tile_us, reference.tile_us},
                               std::pair{changed->link_bytes_per_us, reference.link_bytes_per_us},
                               std::pair{changed->owner_us, reference.owner_us}})
      differ += x == y ? 0 : 1;
    EXPECT_EQ(differ, name == "tile_us" || name == "link_bytes_per_us" || name == "owner_us" ? 1 : 0) << name;
  }
}

TEST(MachineFile, WhatIsWrongIsSaid) {
  const std::string good = to_text(reference_machine());
  expect_refused("{", "no JSON");
  expect_refused("[]", "need an object");
  expect_refused(replaced(good, "\"format\": 1", "\"format\": 2"), "format 2, need 1");
  expect_refused(replaced(good, "\"tile_us\"", "\"tile_ns\""), "an unknown key 'tile_ns'");
  expect_refused(replaced(good, "\"note\"", "\"notes\""), "an unknown key 'notes'");
  expect_refused(replaced(good, "{\"value\": 4.5,", "{\"value\": 0,"),
                 "rate tile_us: value is 0, need 1e-06");
  expect_refused(replaced(good, "{\"value\": 4.5,", "{\"value\": \"4.5\","),
                 "rate tile_us: value is \"4.5\"");
  expect_refused(replaced(good, "{\"value\": 132", "{\"value\": 132.5"), "need a whole number");
  expect_refused(
      replaced(good, "\"source\": \"the table of the library, src/cost/machine.hpp\"", "\"source\": \" \""),
      "source is empty");
  Machine lacks = reference_machine();
  lacks.rates.pop_back();
  expect_refused(to_text(lacks), "the rate cut_us is missing");
  EXPECT_FALSE(gpu_rates_of(lacks));
}

TEST(MachineFile, ThoseOfTheLibraryAreWhole) {
  EXPECT_EQ(machine_names(), (std::vector<std::string>{"h100", "h200"}));
  for (const std::string& name : machine_names()) {
    const auto machine = find_machine(name);
    ASSERT_TRUE(machine) << machine.error().text();
    EXPECT_TRUE(gpu_rates_of(*machine));
  }
  const auto unknown = find_machine("b200");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(unknown.error().text().find("there are h100, h200"), std::string::npos) << unknown.error().text();
}

}  // namespace
}  // namespace tandem::cost
