#pragma once

#include <memory>
#include <string_view>
#include <tandem/bootstrap/store.hpp>

namespace tandem::cli {

/// The store of ranks that are threads of one process of a job: what groups exchange stays in this process
/// and may be objects; all else is the job's.
class LoopbackStore final : public Store {
 public:
  LoopbackStore(std::shared_ptr<Store> threads, std::shared_ptr<Store> job)
      : threads_(std::move(threads)), job_(std::move(job)) {}

  Result<void> set(std::string_view key, std::span<const std::byte> value) override {
    return of(key).set(key, value);
  }
  Result<Bytes> get(std::string_view key, Deadline deadline) override { return of(key).get(key, deadline); }
  Result<std::int64_t> add(std::string_view key, std::int64_t delta) override {
    return of(key).add(key, delta);
  }
  Result<void> erase(std::string_view key) override { return of(key).erase(key); }
  [[nodiscard]] bool carries_files() const override { return true; }
  Result<void> set_file(std::string_view key, int fd) override { return of(key).set_file(key, fd); }
  Result<UniqueFd> get_file(std::string_view key, Deadline deadline) override {
    return of(key).get_file(key, deadline);
  }
  [[nodiscard]] bool carries_objects() const override { return true; }
  Result<void> set_object(std::string_view key, std::shared_ptr<void> object) override {
    return threads_->set_object(key, std::move(object));
  }
  Result<std::shared_ptr<void>> get_object(std::string_view key, Deadline deadline) override {
    return threads_->get_object(key, deadline);
  }

 private:
  [[nodiscard]] Store& of(std::string_view key) const {
    constexpr std::string_view kGroups = "tandem/group/";
    return key.substr(0, kGroups.size()) == kGroups ? *threads_ : *job_;
  }

  std::shared_ptr<Store> threads_;
  std::shared_ptr<Store> job_;
};

}  // namespace tandem::cli
