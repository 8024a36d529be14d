#include "bootstrap/group_store.hpp"

#include "base/try.hpp"

namespace tandem::bootstrap {

template <class Get>
auto GroupStore::get_in_slices(Deadline deadline, Get get) {
  constexpr std::chrono::milliseconds kSlice{20};
  for (;;) {
    auto value = get(Deadline::earlier(deadline, Deadline::after(kSlice)));
    if (value || value.error().code() != ErrorCode::kTimeout || deadline.expired()) return value;
    if (auto status = status_(); !status) return decltype(value)(tl::unexpected(std::move(status).error()));
  }
}

Result<void> GroupStore::set(std::string_view key, std::span<const std::byte> value) {
  return store_->set(full(key), value);
}

Result<Store::Bytes> GroupStore::get(std::string_view key, Deadline deadline) {
  return get_in_slices(deadline, [&](Deadline slice) { return store_->get(full(key), slice); });
}

Result<std::int64_t> GroupStore::add(std::string_view key, std::int64_t delta) {
  return store_->add(full(key), delta);
}

Result<void> GroupStore::erase(std::string_view key) {
  return store_->erase(full(key));
}

Result<void> GroupStore::set_file(std::string_view key, int fd) {
  return store_->set_file(full(key), fd);
}

Result<UniqueFd> GroupStore::get_file(std::string_view key, Deadline deadline) {
  return get_in_slices(deadline, [&](Deadline slice) { return store_->get_file(full(key), slice); });
}

Result<void> GroupStore::set_object(std::string_view key, std::shared_ptr<void> object) {
  return store_->set_object(full(key), std::move(object));
}

Result<std::shared_ptr<void>> GroupStore::get_object(std::string_view key, Deadline deadline) {
  return get_in_slices(deadline, [&](Deadline slice) { return store_->get_object(full(key), slice); });
}

}  // namespace tandem::bootstrap
