#pragma once

#include <cstddef>
#include <new>
#include <tandem/base/error.hpp>
#include <tandem/device/stream.hpp>
#include <type_traits>
#include <utility>

namespace tandem::cpu {

/// A move-only callable `Result<void>()` that is stored in place. Enqueueing one allocates nothing.
class Task {
 public:
  static constexpr std::size_t kCapacityBytes = 512;

  Task() = default;
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, Task>) explicit Task(F&& f) {
    using Stored = std::remove_cvref_t<F>;
    static_assert(sizeof(Stored) <= kCapacityBytes, "capture less: pass pointers or compact views");
    static_assert(alignof(Stored) <= alignof(std::max_align_t));
    static_assert(std::is_nothrow_move_constructible_v<Stored>);
    new (storage_) Stored(std::forward<F>(f));
    operations_ = &kOperationsOf<Stored>;
  }
  Task(Task&& other) noexcept { take(other); }
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~Task() { reset(); }

  [[nodiscard]] explicit operator bool() const { return operations_ != nullptr; }
  [[nodiscard]] Result<void> operator()() { return operations_->call(storage_); }

 private:
  struct Operations {
    Result<void> (*call)(void*);
    void (*move)(void* from, void* to);
    void (*destroy)(void*);
  };
  template <class F>
  static constexpr Operations kOperationsOf = {
      [](void* f) -> Result<void> { return (*static_cast<F*>(f))(); },
      [](void* from, void* to) { new (to) F(std::move(*static_cast<F*>(from))); },
      [](void* f) { static_cast<F*>(f)->~F(); }};

  void take(Task& other) {
    if (!other.operations_) return;
    other.operations_->move(other.storage_, storage_);
    operations_ = other.operations_;
    other.reset();
  }
  void reset() {
    if (operations_) operations_->destroy(storage_);
    operations_ = nullptr;
  }

  alignas(std::max_align_t) std::byte storage_[kCapacityBytes];
  const Operations* operations_ = nullptr;
};

/// Enqueues host code on a CPU stream. It is what a kernel launch is on a GPU. An Error that the task returns
/// becomes the stream's fault. An exception becomes kInternal. What the task captured is destroyed before the
/// task counts as done, also when it is skipped.
/// Errors:  kInvalidArgument if `stream` is not a CPU stream or the task is empty.
[[nodiscard]] Result<void> launch(Stream& stream, Task task);

}  // namespace tandem::cpu
