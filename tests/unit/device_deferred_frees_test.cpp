#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/deferred_frees.hpp"

// With streams that run when the test says so.

namespace tandem {
namespace fake {

struct Queue {
  std::int64_t pushed = 0;
  std::int64_t done = 0;
};
struct Mark {
  std::shared_ptr<Queue> queue;
  std::int64_t number = 0;
};
bool is_done(const Mark& mark) {
  return mark.queue->done >= mark.number;
}
std::optional<Mark> queued_on(const std::shared_ptr<Queue>& queue) {
  if (queue->pushed == queue->done) return std::nullopt;
  return Mark{queue, queue->pushed};
}

}  // namespace fake
namespace {

using Frees = DeferredFrees<std::shared_ptr<fake::Queue>>;

class DeferredFreesTest : public testing::Test {
 protected:
  DeferredFreesTest() {
    frees_->add_queue(first_);
    frees_->add_queue(second_);
  }
  /// Gives back memory that is a number; freed() lists those freed, in order.
  void give_back(std::int64_t number) {
    frees_->free({.object = reinterpret_cast<void*>(number),
                  .free =
                      [](void* object, void* owner) {
                        static_cast<std::vector<std::int64_t>*>(owner)->push_back(
                            reinterpret_cast<std::int64_t>(object));
                      },
                  .owner = freed_});
  }
  [[nodiscard]] const std::vector<std::int64_t>& freed() const { return *freed_; }
  using Numbers = std::vector<std::int64_t>;

  std::shared_ptr<fake::Queue> first_ = std::make_shared<fake::Queue>();
  std::shared_ptr<fake::Queue> second_ = std::make_shared<fake::Queue>();
  std::shared_ptr<Numbers> freed_ = std::make_shared<Numbers>();
  std::shared_ptr<Frees> frees_ = std::make_shared<Frees>();
};

TEST_F(DeferredFreesTest, frees_at_once_what_no_queued_work_can_use) {
  first_->pushed = first_->done = 5;
  give_back(1);
  EXPECT_EQ(freed(), Numbers({1}));
  EXPECT_EQ(frees_->num_waiting(), 0U);
}

TEST_F(DeferredFreesTest, waits_for_what_every_stream_had_queued_and_for_nothing_later) {
  first_->pushed = 3;
  second_->pushed = 2;
  give_back(1);
  first_->pushed = second_->pushed = 9;
  EXPECT_EQ(freed(), Numbers());
  first_->done = 3;
  frees_->free_unused();
  EXPECT_EQ(freed(), Numbers());
  second_->done = 1;
  frees_->free_unused();
  EXPECT_EQ(freed(), Numbers());
  second_->done = 2;
  frees_->free_unused();
  EXPECT_EQ(freed(), Numbers({1}));
}

TEST_F(DeferredFreesTest, frees_in_order_and_with_the_next_free) {
  first_->pushed = 1;
  give_back(1);
  first_->pushed = 2;
  give_back(2);
  first_->done = 1;
  give_back(3);
  EXPECT_EQ(freed(), Numbers({1}));
  EXPECT_EQ(frees_->num_waiting(), 2U);
  first_->done = 2;
  give_back(4);
  EXPECT_EQ(freed(), Numbers({1, 4, 2, 3}));
}

TEST_F(DeferredFreesTest, a_stream_that_is_gone_still_has_what_was_queued_on_it) {
  first_->pushed = 1;
  give_back(1);
  frees_->remove_queue(first_);
  frees_->free_unused();
  EXPECT_EQ(freed(), Numbers());
  give_back(2);  // behind nothing: the first is no stream any more
  EXPECT_EQ(freed(), Numbers({2}));
  first_->done = 1;
  frees_->free_unused();
  EXPECT_EQ(freed(), Numbers({2, 1}));
}

TEST_F(DeferredFreesTest, the_last_to_go_frees_what_is_left) {
  first_->pushed = 1;
  give_back(1);
  give_back(2);
  frees_.reset();
  EXPECT_EQ(freed(), Numbers({1, 2}));
  EXPECT_EQ(freed_.use_count(), 1);
}

}  // namespace
}  // namespace tandem
