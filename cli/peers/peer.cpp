#include "peers/peer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "failure.hpp"

namespace tandem::cli {
namespace {

struct Library {
  std::string_view name;
  Peers (*load)(const std::optional<std::string>& path);
};
constexpr Library kLibraries[] = {
    {"openblas", load_openblas}, {"onednn", load_onednn}, {"xnnpack", load_xnnpack}};

const Library* find_library(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kLibraries), std::end(kLibraries),
                                         [&](const Library& each) { return each.name == name; });
  return found == std::end(kLibraries) ? nullptr : found;
}

}  // namespace

std::unique_ptr<PeerProduct> Peer::prepare(const PeerOperands&) {
  not_supported(fmt::format("{}: only its products by 4-bit weights are timed", description()));
}

std::unique_ptr<PeerProduct> Peer::prepare(const PeerFourBitOperands&) {
  not_supported(fmt::format("{}: has no products by 4-bit weights", description()));
}

std::vector<PeerRequest> parse_peers(const std::vector<std::string>& flags) {
  std::vector<PeerRequest> requests;
  for (const std::string& flag : flags) {
    const auto equals = flag.find('=');
    PeerRequest request{flag.substr(0, equals), std::nullopt};
    if (equals != std::string::npos) request.path = flag.substr(equals + 1);
    if (find_library(request.name) == nullptr || (request.path && request.path->empty()))
      bad_input(fmt::format("--peers '{}': need openblas, onednn or xnnpack, or NAME=FILE", flag));
    requests.push_back(std::move(request));
  }
  return requests;
}

Peers load_peers(const std::vector<PeerRequest>& requests, MissingPeers& missing) {
  Peers peers;
  for (const PeerRequest& request : requests) {
    try {
      Peers found = find_library(request.name)->load(request.path);
      fmt::print("# {}: {}\n", request.name, found.front()->description());
      for (auto& peer : found) peers.push_back(std::move(peer));
    } catch (const Failure& failure) {
      missing[request.name] = failure.what();
      fmt::print("# {}: not measured: {}\n", request.name, failure.what());
    }
  }
  return peers;
}

}  // namespace tandem::cli
