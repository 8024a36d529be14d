// What ops work in that were still queued when their group ended.
#include "coll/orphaned_memory.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace tandem::coll {
namespace {

// Done when the test says so.
class MarkOfTest final : public Event {
 public:
  explicit MarkOfTest(const bool& is_done) : is_done_(is_done) {}
  [[nodiscard]] bool is_done() const override { return is_done_; }
  [[nodiscard]] Result<void> synchronize(Deadline) override {
    return fail(ErrorCode::kInternal, "waited for work that may never end");
  }
  [[nodiscard]] Result<double> elapsed_us(const Event&) const override { return 0.0; }

 private:
  const bool& is_done_;
};

TEST(CollOrphanedMemory, GoesOnceItsLastUseIsDone) {
  OrphanedMemory orphans;
  bool first_is_done = false;
  bool second_is_done = false;
  auto first = std::make_shared<int>();
  auto of_both = std::make_shared<int>();
  const std::weak_ptr<int> first_memory = first;
  const std::weak_ptr<int> memory_of_both = of_both;
  orphans.add(std::make_unique<MarkOfTest>(first_is_done), {std::move(first), of_both});
  orphans.add(std::make_unique<MarkOfTest>(second_is_done), {std::move(of_both)});
  orphans.free_unused();
  EXPECT_FALSE(first_memory.expired());
  EXPECT_FALSE(memory_of_both.expired());
  first_is_done = true;
  EXPECT_FALSE(first_memory.expired()) << "only free_unused() looks";
  orphans.free_unused();
  EXPECT_TRUE(first_memory.expired());
  EXPECT_FALSE(memory_of_both.expired());
  second_is_done = true;
  orphans.free_unused();
  EXPECT_TRUE(memory_of_both.expired());
}

// Memory may hold groups that leave memory of their own.
TEST(CollOrphanedMemory, MayBeLeftWhileOtherMemoryGoes) {
  OrphanedMemory orphans;
  const bool is_done = true;
  std::weak_ptr<int> inner_memory;
  const auto leave_more = [&](const int*) {
    auto inner = std::make_shared<int>();
    inner_memory = inner;
    orphans.add(std::make_unique<MarkOfTest>(is_done), {std::move(inner)});
  };
  orphans.add(std::make_unique<MarkOfTest>(is_done), {std::shared_ptr<int>(nullptr, leave_more)});
  orphans.free_unused();
  EXPECT_FALSE(inner_memory.expired());
  orphans.free_unused();
  EXPECT_TRUE(inner_memory.expired());
}

}  // namespace
}  // namespace tandem::coll
