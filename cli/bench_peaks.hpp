#pragma once

#include <string>

#include "command.hpp"

namespace tandem::cli {

/// `bench peaks`: the flags that it takes.
struct PeaksBench {
  bool all_cores = false;
  int warmup = 2;
  int iterations = 10;
  std::string json;
};

/// Measures what bounds products on this CPU: the rates of its instructions, and of reads, writes and copies
/// of memory. On one core, and with `all_cores` on all of them at once as well. In this process, in turns.
int bench_peaks(const PeaksBench& flags, const Invocation& invocation, const JobPlace& place);

}  // namespace tandem::cli
