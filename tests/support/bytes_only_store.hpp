#pragma once

#include <memory>
#include <tandem/bootstrap/store.hpp>
#include <utility>

namespace tandem::test {

/// A store as most of others are: it carries bytes, and neither files nor objects. A group of several
/// processes opens a server with a socket then.
class BytesOnly : public Store {
 public:
  explicit BytesOnly(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  Result<void> set(std::string_view key, std::span<const std::byte> value) override {
    return store_->set(key, value);
  }
  Result<Bytes> get(std::string_view key, Deadline deadline) override { return store_->get(key, deadline); }
  Result<std::int64_t> add(std::string_view key, std::int64_t delta) override {
    return store_->add(key, delta);
  }
  Result<void> erase(std::string_view key) override { return store_->erase(key); }

 protected:
  std::shared_ptr<Store> store_;
};

}  // namespace tandem::test
