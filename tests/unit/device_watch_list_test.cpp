#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "device/cuda/watch_list.hpp"

// Who is told of a fault that a kernel left behind, and that lists of watches stay short.

namespace tandem::cuda {
namespace {

class PlannedWatch final : public StreamWatch {
 public:
  [[nodiscard]] Result<void> status() override {
    ++num_asked;
    if (text.empty()) return {};
    return fail(ErrorCode::kPeerLost, text);
  }

  [[nodiscard]] const void* source() const override { return group != nullptr ? group : this; }

  std::string text;
  const void* group = nullptr;
  int num_asked = 0;
};

std::string text_of(const Result<void>& result) {
  return result ? "ok" : result.error().text();
}

TEST(WatchList, AddingOneTwiceIsAddingItOnce) {
  const auto watch = std::make_shared<PlannedWatch>();
  WatchList list;
  WatchList other;
  other.add(watch);
  list.add(watch);
  list.add(watch);
  list.add(watch);
  list.add(other);
  list.add(list);
  EXPECT_EQ(list.copy().size(), 1U);
  list.ask_all();
  EXPECT_EQ(watch->num_asked, 1);
}

TEST(WatchList, TellsTheFirstFaultOnceAndThenTheNext) {
  std::vector<std::shared_ptr<PlannedWatch>> watches;
  WatchList list;
  for (const char* text : {"", "first", "", "second"}) {
    watches.push_back(std::make_shared<PlannedWatch>());
    watches.back()->text = text;
    list.add(watches.back());
  }
  EXPECT_EQ(text_of(list.status()), "first");
  EXPECT_EQ(text_of(list.status()), "first") << "asking forgets nothing";
  EXPECT_EQ(text_of(list.take_fault()), "first");
  EXPECT_EQ(text_of(list.take_fault()), "second");
  EXPECT_EQ(text_of(list.take_fault()), "ok");
  list.add(watches[1]);
  EXPECT_EQ(text_of(list.take_fault()), "first") << "work enqueued since";
}

TEST(WatchList, TellsAFaultOfOneSourceOnce) {
  const int group = 0;
  const int other_group = 0;
  std::vector<std::shared_ptr<PlannedWatch>> watches;
  WatchList list;
  for (const void* of : {&group, &other_group, &group}) {
    watches.push_back(std::make_shared<PlannedWatch>());
    watches.back()->group = of;
    watches.back()->text = of == &group ? "lost" : "other";
    list.add(watches.back());
  }
  EXPECT_EQ(text_of(list.take_fault()), "lost");
  EXPECT_EQ(text_of(list.take_fault()), "other") << "another group's is another fault";
  EXPECT_EQ(text_of(list.take_fault()), "ok");
  list.add(watches[2]);
  EXPECT_EQ(text_of(list.take_fault()), "lost") << "work enqueued since";
}

TEST(WatchList, WatchesThatAreGoneLeaveTheirPlaceToOthers) {
  WatchList list;
  const auto stays = std::make_shared<PlannedWatch>();
  for (int i = 0; i < 100; ++i) {
    const auto goes = std::make_shared<PlannedWatch>();
    list.add(goes);
    list.add(stays);
  }
  EXPECT_EQ(list.copy().size(), 2U);
  list.ask_all();
  EXPECT_EQ(stays->num_asked, 1);
  stays->text = "lost";
  EXPECT_EQ(text_of(list.take_fault()), "lost");
}

TEST(WatchList, AMarkHasWhatItsStreamHadWhenItWasMade) {
  const auto early = std::make_shared<PlannedWatch>();
  const auto late = std::make_shared<PlannedWatch>();
  early->text = "early";
  late->text = "late";
  WatchList stream;
  WatchList mark;
  mark.add(late);
  stream.add(early);
  mark.assign(stream);
  stream.add(late);
  EXPECT_EQ(text_of(mark.take_fault()), "early");
  EXPECT_EQ(text_of(mark.take_fault()), "ok");
  EXPECT_EQ(text_of(stream.take_fault()), "early") << "lists forget each for itself";
}

TEST(WatchList, WatchThatIsGoneSaysNothing) {
  WatchList list;
  {
    const auto goes = std::make_shared<PlannedWatch>();
    goes->text = "lost";
    list.add(goes);
  }
  EXPECT_EQ(text_of(list.status()), "ok");
  list.ask_all();
  EXPECT_EQ(text_of(list.take_fault()), "ok");
}

}  // namespace
}  // namespace tandem::cuda
