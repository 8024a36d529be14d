#include "symm/cpu/joining.hpp"

#include <algorithm>
#include <string>
#include <tandem/bootstrap/store.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "symm/exchange.hpp"

namespace tandem::symm::cpu {
namespace {

// Group::store() keeps the keys of each group apart, and each life of a group that reuses a name. The cookie
// is for an error's reader: it is in the memory's header too.
std::string key_of(const Record& record, const char* part, std::uint64_t cookie) {
  return fmt::format("symm/{}/{}/{}/{:016x}", record.number, record.rank, part, cookie);
}

// What this rank has published, forgotten again at the end of the rendezvous.
class Published {
 public:
  explicit Published(Store& store) : store_(store) {}
  Published(const Published&) = delete;
  Published& operator=(const Published&) = delete;
  ~Published() {
    for (const std::string& key : keys_) (void)store_.erase(key);  // a store that is gone has forgotten it
  }
  Result<void> publish(const std::string& key, const std::shared_ptr<Segment>& segment) {
    keys_.push_back(key);
    return store_.carries_objects() ? store_.set_object(key, segment) : store_.set_file(key, segment->fd());
  }

 private:
  Store& store_;
  std::vector<std::string> keys_;
};

// Ends early when the group is poisoned: Group::store() sees to it.
Result<std::shared_ptr<Segment>> receive(Store& store, const std::string& key, const SegmentName& expected,
                                         Deadline deadline) {
  if (store.carries_objects()) {
    TANDEM_ASSIGN(auto object, store.get_object(key, deadline));
    return std::static_pointer_cast<Segment>(std::move(object));
  }
  TANDEM_ASSIGN(const UniqueFd file, store.get_file(key, deadline));
  return Segment::import(file, expected);
}

// Poisons the group: a rank without its peers' memory cannot go on, and the others must not wait for it.
tl::unexpected<Error> give_up(Group& group, const Record& peer, const char* part, const Error& why) {
  Error error(why.code(),
              fmt::format("rendezvous: rank {} cannot use the {} of rank {} (pid {}): {}", group.rank(), part,
                          peer.rank, peer.pid, why.text()),
              why.native_code());
  group.poison(error, peer.rank);
  return tl::unexpected(group.status() ? error : group.status().error());
}

}  // namespace

Result<std::shared_ptr<Peers>> CpuJoining::connect(Group& group, std::span<const Record> table) {
  Store& store = group.store();
  const Record& mine = table[static_cast<std::size_t>(group.rank())];
  const Deadline deadline = Deadline::after(group.config().rendezvous_timeout);
  Published published(store);
  if (group.size() > 1) {
    auto sent = published.publish(key_of(mine, "data", mine.block_cookie), data_);
    if (sent) sent = published.publish(key_of(mine, "pad", mine.pad_cookie), pad_);
    if (!sent) return give_up(group, mine, "memory", sent.error());
  }
  auto peers = std::make_shared<Peers>();
  for (const Record& record : table) {
    std::shared_ptr<Segment> data = data_;
    std::shared_ptr<Segment> pad = pad_;
    if (record.rank != group.rank()) {
      auto got_data = receive(store, key_of(record, "data", record.block_cookie),
                              {record.block_bytes, record.block_cookie}, deadline);
      if (!got_data) return give_up(group, record, "data", got_data.error());
      auto got_pad = receive(store, key_of(record, "pad", record.pad_cookie),
                             {record.pad_bytes, record.pad_cookie}, deadline);
      if (!got_pad) return give_up(group, record, "signal pad", got_pad.error());
      data = *std::move(got_data);
      pad = *std::move(got_pad);
    }
    peers->buffers.push_back(data->data());
    peers->pads.push_back(static_cast<std::uint32_t*>(pad->data()));
    peers->mappings.push_back(std::move(data));
    peers->mappings.push_back(std::move(pad));
  }
  // Everybody has mapped everything: the keys may go, and the pad's file, which nobody else will ask for.
  TANDEM_TRY(group.all_gather({}, "rendezvous end"));
  pad_->close_fd();
  return peers;
}

}  // namespace tandem::symm::cpu
