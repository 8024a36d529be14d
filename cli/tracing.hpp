#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <tandem/bootstrap/launcher.hpp>
#include <tandem/timeline/timeline.hpp>
#include <vector>

#include "machine.hpp"

namespace tandem::cli {

/// A command line, which may be `tandem trace COMMAND ...`.
struct CommandLine {
  std::vector<std::string> words;              ///< the program and what it is to do, without the tracing
  std::optional<std::filesystem::path> trace;  ///< the folder of `trace`; none without it

  /// Throws exit 2 for a trace without a folder, or of a command that cannot be traced.
  [[nodiscard]] static CommandLine of(int argc, char** argv);
};

/// In the launcher: what the ranks' timelines tell, and the files that come of it.
class Tracing {
 public:
  /// Claims the files. Throws exit 2 if nothing can be written there.
  explicit Tracing(std::filesystem::path folder);

  /// Before a job's ranks start: they are to have timelines.
  static void ask(Store& store, bool is_traced);
  /// Behind it: adds what they told.
  void collect(Store& store);
  /// Writes the files, and prints what the time went to. Throws exit 4 if no op ran that a timeline sees.
  void finish(const std::string& command, const Machine& machine) const;

 private:
  std::filesystem::path folder_;
  trace::Trace trace_;
};

/// In a rank: the timeline that the launcher asks for; null if it asks for none.
[[nodiscard]] std::shared_ptr<Timeline> asked_timeline(const RankContext& context, Device& device);
/// In a rank, collective: tells the launcher what was noted.
void tell(Timeline& timeline, Group& group, const RankContext& context);

}  // namespace tandem::cli
