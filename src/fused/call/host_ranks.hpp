#pragma once

namespace tandem::fused {

/// A rank of a group on several hosts, and the ranks that it exchanges rows with. Hosts have equally many
/// ranks, one after the other. A rank's partner on another host has its number there: see
/// docs/design/hosts.md.
struct RankOnHosts {
  int num_hosts = 1;
  int per_host = 1;
  int host = 0;
  int local = 0;  ///< the rank's number on its host

  template <class Problem>
  [[nodiscard]] static RankOnHosts of(int rank, const Problem& problem) {
    const int per_host = problem.ranks_per_host();
    return {.num_hosts = problem.num_hosts,
            .per_host = per_host,
            .host = rank / per_host,
            .local = rank % per_host};
  }
  /// In the group.
  [[nodiscard]] int rank_on(int on_host, int number) const { return on_host * per_host + number; }
  [[nodiscard]] int partner_on(int on_host) const { return rank_on(on_host, local); }
  // In step s of 1 to num_hosts - 1 this host sends to host h+s and receives from h-s: no two send to one at
  // once.
  [[nodiscard]] int host_to(int step) const { return (host + step) % num_hosts; }
  [[nodiscard]] int host_from(int step) const { return (host - step + num_hosts) % num_hosts; }
};

}  // namespace tandem::fused
