#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tandem/trace/events.hpp>
#include <vector>

namespace tandem::trace {

/// Sums of time, of the events of one rank or of some of its calls.
/// Units:   us.
/// Source:  docs/design/timeline.md
struct TimeSums {
  double busy_us = 0;                  ///< something but waits ran
  double product_us = 0;               ///< a product ran that did not wait for a chunk
  double communication_us = 0;         ///< a copy from or to a peer ran
  double hidden_us = 0;                ///< of that, the part beside products
  double between_hosts_us = 0;         ///< rows came from another host, or were awaited from there
  double between_hosts_hidden_us = 0;  ///< of that, the part beside products
  double waiting_us = 0;               ///< it waited, and nothing else ran
  /// hidden_us / communication_us; none without communication.
  [[nodiscard]] std::optional<double> hidden_share() const;
  /// The same of what came from other hosts.
  [[nodiscard]] std::optional<double> between_hosts_hidden_share() const;
};

/// What one rank did with its time.
struct RankSummary : TimeSums {
  int rank = 0;
};

/// What the calls of one op by one algorithm took. The sums are of their events alone, added over the ranks.
/// Units:   us; a call takes from its begin on the first rank to its end on the last one.
struct OpSummary : TimeSums {
  std::string op;         ///< "all_gather_matmul [4096,3584,8192] bf16"
  std::string algorithm;  ///< "pipelined"
  std::int64_t num_calls = 0;
  double median_us = 0;  ///< of a call
  double mean_us = 0;    ///< of a call
};

/// A wait that cost its rank time, and why it lasted.
struct Loss {
  int rank = 0;
  std::int32_t call = -1;
  std::string what;           ///< "barrier 1"
  double us = 0;              ///< of the wait: in which nothing else ran on the rank
  std::int64_t begin_ns = 0;  ///< of the whole wait
  std::int64_t end_ns = 0;
  int waited_for = -1;       ///< the rank that came last; -1 if nobody knows
  std::string because = {};  ///< "rank 1 came 5.0 ms late: nothing ran there from 12.0 to 17.0 ms"
};

struct Summary {
  std::int64_t begin_ns = 0;  ///< of the first event of any rank
  std::int64_t end_ns = 0;
  std::vector<RankSummary> ranks;
  std::vector<OpSummary> ops;  ///< in the order of their first calls
  /// The one that others waited for longest. -1: nobody waited for anybody.
  int slowest_rank = -1;
  std::vector<Loss> losses;  ///< the largest first
};

/// Finds what the ranks' time went to. Keeps the largest `most_losses`.
[[nodiscard]] Summary summarize(const Trace& trace, std::size_t most_losses = 20);

}  // namespace tandem::trace
