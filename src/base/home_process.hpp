#pragma once

#include <sys/types.h>
#include <atomic>
#include <memory>
#include <new>
#include <string_view>
#include <tandem/base/error.hpp>
#include <utility>

namespace tandem {

// Objects after fork(). The child has copies of its parent's objects, but not the threads that serve them. A
// lock that another thread held stays locked there, and sockets and shared memory are the parent's too. So an
// object with threads, locks or shares remembers the process that made it. It refuses calls in a child, and
// is not destroyed there.

/// The process that made an object. A look costs one load.
class HomeProcess {
 public:
  HomeProcess();
  [[nodiscard]] bool is_here() const { return generation_ == current.load(std::memory_order_relaxed); }
  /// kInvalidArgument for a call on `what` in a child.
  [[nodiscard]] Error refusal(std::string_view what) const;
  /// Ok where it was made. `what` is for the text.
  [[nodiscard]] Result<void> check(std::string_view what) const {
    if (is_here()) return {};
    return tl::unexpected<Error>(refusal(what));
  }

 private:
  static std::atomic<int> current;  ///< the number of forks since the library was loaded
  static const int registered;
  int generation_;
  pid_t pid_;
};

/// Notes what is never deleted, for tools that look for leaks.
void note_kept(const void* object) noexcept;

/// Moves an object to where it is never destroyed: one of another process.
template <class T>
void keep_forever(T object) noexcept {
  alignas(T) static thread_local unsigned char reserve[sizeof(T)];
  void* place = ::operator new(sizeof(T), std::nothrow);
  note_kept(new (place == nullptr ? reserve : place) T(std::move(object)));
}

/// Deletes an object where it was made; keeps it in a child.
class DeleteAtHome {
 public:
  template <class T>
  void operator()(T* object) const {
    if (home_.is_here()) {
      delete object;
    } else {
      note_kept(object);
    }
  }

 private:
  HomeProcess home_;
};

/// An object of which every process has its own, the child of a fork too. It is never destroyed: threads may
/// end after everything that is static.
template <class T>
class OnePerProcess {
 public:
  [[nodiscard]] T& get() {
    Copy* last = last_.load(std::memory_order_acquire);
    while (last == nullptr || !last->home.is_here()) {
      auto made = std::make_unique<Copy>();
      made->parents = last;
      if (last_.compare_exchange_strong(last, made.get(), std::memory_order_acq_rel)) last = made.release();
    }
    return last->object;
  }

 private:
  struct Copy {
    HomeProcess home;
    T object;
    Copy* parents = nullptr;  ///< stays, for those who look for leaks
  };
  std::atomic<Copy*> last_{nullptr};
};

}  // namespace tandem
