#pragma once

#include <optional>
#include <string>
#include <tandem/graph/fuse.hpp>

#include "command.hpp"

namespace tandem::cli {

/// `tandem graph run`: a captured program and what passes make of it, executed on ranks.
class GraphRun {
 public:
  void define(CLI::App& app);
  int launch(const Invocation& invocation) const;
  [[nodiscard]] nlohmann::json run_rank(const RankContext& context, const Config& config) const;

 private:
  std::string file_;
  std::string json_;
  std::optional<int> ranks_;
  std::uint64_t seed_ = 0;
  bool compare_ = false;
  graph::FuseOptions options_;
};

}  // namespace tandem::cli
