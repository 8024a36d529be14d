#pragma once

#include <string>
#include <vector>

#include "command.hpp"
#include "harness/problem.hpp"
#include "peers/peer.hpp"

namespace tandem::cli {

/// `bench mm --peers`: what it is asked for. Of a problem count the sizes, the type and b's order.
struct ProductsBench {
  std::vector<harness::Problem> problems;
  std::vector<PeerRequest> peers;
  bool all_cores = false;
  int warmup = 2;
  int iterations = 10;
  std::string json;
};

/// Times plain products on CPUs in turns with those of other libraries and with what the processor's
/// instructions reach, on one core, and with `all_cores` on all of them too. In this process.
int bench_products(const ProductsBench& flags, const Invocation& invocation, const JobPlace& place);

}  // namespace tandem::cli
