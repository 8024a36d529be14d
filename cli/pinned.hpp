#pragma once

#include <functional>
#include <vector>

namespace tandem::cli {

/// The numbers of the cores that the calling thread may run on, in order.
[[nodiscard]] std::vector<int> allowed_cores();

/// Keeps the calling thread, and threads that it starts meanwhile, on some cores as long as it lives.
class Pinned {
 public:
  explicit Pinned(const std::vector<int>& cores);
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  std::vector<int> before_;
};

/// Calls `work(i)` on a thread of its own on each of the cores, i counting them. All begin together, and the
/// call returns behind the last of them.
void run_at_once(const std::vector<int>& cores, const std::function<void(std::size_t)>& work);

}  // namespace tandem::cli
