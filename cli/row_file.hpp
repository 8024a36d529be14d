#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <tandem/base/error.hpp>

#include "command.hpp"

namespace tandem::cli {

/// A file of measured rows, one JSON object a line. Each line arrives whole or not at all, also when several
/// processes append. The file is made with its first row.
class RowFile {
 public:
  /// An empty path keeps nothing. Throws exit 2 for a file that cannot be written.
  explicit RowFile(const std::string& path);
  /// Throws exit 1 when the line was not written whole: then nothing of it is in the file.
  void append(const nlohmann::json& row) const;

 private:
  std::string path_;
};

/// Whether rows can be added to such a file, or it can be made.
[[nodiscard]] Result<void> check_rows(const std::string& path);

/// Adds where a row was measured, by which source and by which command; the command without --json.
void add_circumstances(nlohmann::json& row, const Invocation& invocation, const JobPlace& place);

}  // namespace tandem::cli
