#include "bootstrap/rank_ends.hpp"

#include <cstring>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::bootstrap {
namespace {

constexpr std::string_view kSizeKey = "tandem/job/size";
constexpr std::string_view kLaunchKey = "tandem/job/launch";
constexpr std::string_view kNumEndedKey = "tandem/job/num_ended";

std::string joined_key(int rank) {
  return fmt::format("tandem/job/joined/{}", rank);
}
std::string end_key(int rank) {
  return fmt::format("tandem/job/end/{}", rank);
}

/// 0 is the counter of a rank that runs.
std::int64_t to_counter(const RankEnd& end) {
  return 1 + end.exit_code + (std::int64_t{end.signal} << 16);
}
RankEnd from_counter(std::int64_t counter) {
  return {static_cast<int>((counter - 1) & 0xffff), static_cast<int>(counter >> 16)};
}

/// 0 where it cannot be read: who asks in vain learns of the store's fault elsewhere.
std::int64_t read(Store& store, std::string_view key) {
  return store.add(key, 0).value_or(0);
}

}  // namespace

std::string describe(const RankEnd& end) {
  if (end.signal != 0) return fmt::format("was ended by signal {} ({})", end.signal, ::strsignal(end.signal));
  if (end.exit_code == RankEnd::kUnknown) return "has ended";
  return fmt::format("ended with exit code {}", end.exit_code);
}

Result<void> write_job_size(Store& store, int size) {
  TANDEM_TRY(store.add(kSizeKey, size));
  return {};
}

Result<void> write_launch(Store& store) {
  TANDEM_TRY(store.add(kLaunchKey, 1));
  return {};
}

bool is_launch(Store& store) {
  return read(store, kLaunchKey) != 0;
}

Result<void> write_joined(Store& store, int rank) {
  TANDEM_TRY(store.add(joined_key(rank), 1));
  return {};
}

bool has_joined(Store& store, int rank) {
  return read(store, joined_key(rank)) != 0;
}

Result<void> write_end(Store& store, int rank, const RankEnd& end) {
  if (read(store, end_key(rank)) != 0) return {};
  TANDEM_TRY(store.add(end_key(rank), to_counter(end)));
  TANDEM_TRY(store.add(kNumEndedKey, 1));
  return {};
}

std::optional<RankEnd> read_end(Store& store, int rank) {
  const std::int64_t counter = read(store, end_key(rank));
  return counter == 0 ? std::nullopt : std::optional(from_counter(counter));
}

bool is_job_of(Store& store, int size) {
  return read(store, kSizeKey) == size;
}

std::vector<int> find_ended(Store& store, int size, int self) {
  std::vector<int> ended;
  if (read(store, kNumEndedKey) == 0) return ended;  // one question as long as all run
  for (int r = 0; r < size; ++r) {
    if (r != self && read_end(store, r)) ended.push_back(r);
  }
  return ended;
}

}  // namespace tandem::bootstrap
