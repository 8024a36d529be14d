#pragma once

// Says what a test left behind. Make one first, end with
//   EXPECT_EQ(oracle.leaks(), "");

#include <map>
#include <string>

namespace tandem::testing {

/// Compares the process before and after: open files, mappings of shared memory, children, tandem's names in
/// /dev/shm, and what lies in the temporary directory. While it lives, TMPDIR is a directory of its own, so
/// other programs do not disturb.
class LeakOracle {
 public:
  LeakOracle();
  ~LeakOracle();
  LeakOracle(const LeakOracle&) = delete;
  LeakOracle& operator=(const LeakOracle&) = delete;

  /// One line for each thing there is more of than before; empty if there is none. Waits up to a second for
  /// things that end by themselves.
  [[nodiscard]] std::string leaks() const;

 private:
  using Inventory = std::map<std::string, int>;  ///< what, how many
  [[nodiscard]] Inventory take() const;
  std::string directory_;
  std::string former_directory_;
  Inventory before_;
};

}  // namespace tandem::testing
