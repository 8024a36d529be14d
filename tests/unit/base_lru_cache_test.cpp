#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "base/lru_cache.hpp"

namespace tandem {
namespace {

TEST(LruCache, the_one_that_was_used_longest_ago_makes_room) {
  LruCache<int, std::string> cache(2);
  EXPECT_EQ(cache.find(1), nullptr);
  EXPECT_EQ(cache.insert(1, "one"), "one");
  cache.insert(2, "two");
  ASSERT_NE(cache.find(1), nullptr);  // a use
  cache.insert(3, "three");
  EXPECT_EQ(cache.find(2), nullptr);
  ASSERT_NE(cache.find(1), nullptr);
  EXPECT_EQ(*cache.find(1), "one");
  EXPECT_EQ(*cache.find(3), "three");
  EXPECT_EQ(cache.size(), 2U);
}

TEST(LruCache, an_equal_key_takes_the_place_of_the_old_value_and_is_a_use) {
  LruCache<int, int> cache(2);
  cache.insert(1, 10);
  cache.insert(2, 20);
  EXPECT_EQ(cache.insert(1, 11), 11);
  EXPECT_EQ(cache.size(), 2U);
  cache.insert(3, 30);
  EXPECT_EQ(*cache.find(1), 11);
  EXPECT_EQ(cache.find(2), nullptr);
}

TEST(LruCache, a_limit_of_none_is_one) {
  LruCache<int, int> cache(0);
  EXPECT_EQ(cache.insert(1, 10), 10);
  EXPECT_EQ(cache.insert(2, 20), 20);
  EXPECT_EQ(cache.size(), 1U);
  EXPECT_EQ(cache.find(1), nullptr);
}

TEST(LruCache, what_makes_room_goes_at_once) {
  LruCache<int, std::shared_ptr<int>> cache(1);
  const std::weak_ptr<int> first = cache.insert(1, std::make_shared<int>(1));
  EXPECT_FALSE(first.expired());
  cache.insert(2, std::make_shared<int>(2));
  EXPECT_TRUE(first.expired());
}

// Against a list that is searched from end to end, in which the last used stands first.
TEST(LruCache, does_what_a_list_does_under_random_calls) {
  std::mt19937 random(7);
  for (const std::size_t limit : {1, 2, 5, 17}) {
    LruCache<int, int> cache(limit);
    std::list<std::pair<int, int>> list;
    for (int i = 0; i < 2000; ++i) {
      const int key = static_cast<int>(random() % 24);
      const auto known =
          std::find_if(list.begin(), list.end(), [&](const auto& e) { return e.first == key; });
      const int* const found = cache.find(key);
      ASSERT_EQ(found != nullptr, known != list.end());
      if (known != list.end()) {
        ASSERT_EQ(*found, known->second);
        list.splice(list.begin(), list, known);
        continue;
      }
      if (list.size() == limit) list.pop_back();
      list.emplace_front(key, i);
      cache.insert(key, i);
      ASSERT_EQ(cache.size(), list.size());
    }
  }
}

}  // namespace
}  // namespace tandem
