#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command.hpp"
#include "peers/peer.hpp"

namespace tandem::cli {

/// `bench matmul_4bit`: the flags that it takes.
struct FourBitBench {
  std::vector<std::int64_t> m;
  std::vector<std::int64_t> n;
  std::vector<std::int64_t> k;
  std::vector<std::int64_t> group_sizes;  ///< empty: 32; 0 is all of k
  std::string preset;                     ///< "7b", "2b", or empty
  std::vector<PeerRequest> peers;
  int warmup = 2;
  int iterations = 10;
  std::string json;
};

/// Times products by 4-bit weights in turn with the same product in f32, with a plain read of the packed
/// weight, and with peers' products of the same operands, in this process. With a preset it adds up the
/// products of a model: prompt and next token.
int bench_4bit(const FourBitBench& flags, const Invocation& invocation, const JobPlace& place);

}  // namespace tandem::cli
