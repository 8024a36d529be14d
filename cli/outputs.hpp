#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace tandem::cli {

// The files that this process was asked to write, and what it has written of them. A command claims all of
// them before it works, and keeps what it writes through a Writing, so that an interrupt can say what stays.

/// Throws exit 2 unless a file of this name can be written, and nobody claimed it before. `flag` is named in
/// the text. An empty path is no output.
void claim_output(const std::string& flag, const std::string& path);
/// The same for a file of rows, which is added to.
void claim_rows(const std::string& flag, const std::string& path);
/// The same for files in a folder, which is made when they are written.
void claim_in_folder(const std::string& flag, const std::filesystem::path& folder,
                     const std::vector<std::string>& names);

/// Something that is about to stay: while one exists, an interrupt waits a moment for it.
class Writing {
 public:
  explicit Writing(std::string path);
  ~Writing();
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

  /// The file is there, whole.
  void kept() const;
  /// One more row of it is.
  void kept_row() const;

 private:
  std::string path_;
};

/// Writes the file whole. Throws exit 1 with the reason; the file that was there stays then.
void write_output(const std::string& flag, const std::string& path, const std::string& text);

/// "nothing was written", or what was.
[[nodiscard]] std::string kept_in_words();
/// The same, for a process that ends now: nothing is written from here on. It waits so long for a Writing.
[[nodiscard]] std::string kept_at_the_end(std::chrono::milliseconds patience);

}  // namespace tandem::cli
