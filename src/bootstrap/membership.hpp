#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/local_store.hpp>
#include <tandem/bootstrap/store.hpp>
#include <vector>

#include "bootstrap/process_id.hpp"

namespace tandem::bootstrap {

// How ranks that share nothing but a store and a group's name become a group. Every rank takes its seat (a
// counter, so that a second holder is noticed); every rank but 0 then queues a numbered ticket; rank 0 reads
// tickets until all ranks are there and answers each. Rank 0 decides, so ranks can not form two different
// lives of a recycled name. docs/design/bootstrap.md has the whole protocol.

/// The place of one rank in a named group; given back on destruction.
class Seat {
 public:
  Seat() = default;
  /// Errors: kInvalidArgument if somebody holds it.
  [[nodiscard]] static Result<Seat> take(std::shared_ptr<Store> store, const std::string& prefix, int rank);
  /// Ranks in [0, size) whose seat nobody holds.
  [[nodiscard]] static Result<std::vector<int>> find_empty(Store& store, const std::string& prefix, int size);
  Seat(Seat&&) noexcept = default;
  Seat& operator=(Seat&& other) noexcept;
  ~Seat() { give_back(); }

 private:
  void give_back();
  std::shared_ptr<Store> store_;
  std::string key_;
};

/// The error of a group that can not form any more, because a rank that it needs is lost; else nothing. Asked
/// every 25 ms. An empty function: nobody can know.
using FindLost = std::function<std::optional<Error>()>;
/// Of the group of all ranks of a job. Empty if `store` is that of no job, or of one of another size.
[[nodiscard]] FindLost find_lost_of_job(std::shared_ptr<Store> store, int size, int self);

/// Who wants to join.
struct Candidate {
  static constexpr std::uint32_t kProtocolVersion = 2;
  std::uint32_t version = kProtocolVersion;
  std::int32_t rank = 0;
  std::int32_t size = 1;
  ProcessId process;
  char host[48] = {};

  [[nodiscard]] static Candidate self(int rank, int size);
};

/// What rank 0 tells the members.
struct Invitation {
  std::uint64_t nonce = 0;                      ///< names this life of the group
  std::optional<LocalStoreAddress> file_store;  ///< if the group's store can not carry files
};

/// Rank 0's side. Call invite() or reject() after collect().
class Host {
 public:
  Host(std::shared_ptr<Store> store, std::string prefix, const Candidate& self, FindLost find_lost);
  /// Waits for all others; their candidates in rank order, rank 0's own first.
  /// Errors: kTimeout naming the missing, that of a lost rank, kMismatch for another size or version,
  /// kUnsupported for another host.
  [[nodiscard]] Result<std::vector<Candidate>> collect(Deadline deadline);
  [[nodiscard]] Result<void> invite(const Invitation& invitation);
  /// Tells those that came.
  void reject(const Error& why);

 private:
  struct Ticket {
    std::int64_t number = 0;
    Candidate candidate;
  };
  [[nodiscard]] Result<std::optional<Ticket>> next_ticket(Deadline deadline);
  [[nodiscard]] Result<std::size_t> drop_gone(std::vector<std::optional<Ticket>>& by_rank);
  [[nodiscard]] Result<void> check(const std::vector<std::optional<Ticket>>& tickets) const;

  std::shared_ptr<Store> store_;
  std::string prefix_;
  Candidate self_;
  FindLost find_lost_;
  std::optional<Error> lost_;
  std::vector<Ticket> accepted_;
};

/// The side of every other rank: queues a ticket, waits for the answer.
[[nodiscard]] Result<Invitation> ask_to_join(Store& store, const std::string& prefix, const Candidate& self,
                                             Deadline deadline, const FindLost& find_lost);

}  // namespace tandem::bootstrap
