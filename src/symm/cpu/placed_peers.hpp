#pragma once

#include <memory>
#include <vector>

#include "symm/cpu/segment.hpp"
#include "symm/exchange.hpp"
#include "symm/hand_over.hpp"
#include "symm/service.hpp"

namespace tandem::symm::cpu {

/// Every rank's segments at addresses that are known before the ranks have met: those of other processes are
/// reserved, and connect() maps what their ranks have offered. Ranks that are threads share the addresses
/// themselves; each fills its own.
class PlacedPeers final : public Peers {
 public:
  /// Reserves all, fills this rank's own and offers it. Errors: as Segment::create(); nothing is offered
  /// then.
  [[nodiscard]] static Result<std::shared_ptr<PlacedPeers>> make(Group& group, std::vector<Record> records);

  [[nodiscard]] const std::shared_ptr<Segment>& own_data() const { return own_->data; }
  /// Inside a task: takes what the others offer, and returns when all ranks have everything.
  /// Errors: the group's, which every failure here becomes; kInvalidArgument if the group has ended.
  [[nodiscard]] Result<void> connect();
  /// What was offered and not taken is forgotten.
  void see_group_end() override;

 private:
  struct Pair {
    std::shared_ptr<Segment> data;
    std::shared_ptr<Segment> pad;
  };
  using Space = std::vector<Pair>;  // by rank

  [[nodiscard]] static Result<HandOver::Object> reserve(const std::vector<Record>& records);
  [[nodiscard]] Result<void> offer(int own_rank);
  [[nodiscard]] Result<void> take(const Record& from);

  std::vector<Record> records_;  // before hand_over_, which looks at them
  std::shared_ptr<Space> space_;
  Pair* own_ = nullptr;
  std::unique_ptr<HandOver> hand_over_;  // null once all have everything, or the group has ended
};

}  // namespace tandem::symm::cpu
