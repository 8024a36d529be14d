#include "symm/hand_over.hpp"

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::symm {
namespace {

using Part = HandOver::Part;

// Group::store() keeps the keys of each group apart, and each life of a group that reuses a name. The cookie
// ties the memory to the record; on the CPU it is in the memory's header too.
std::string key_of(const Record& record, Part part) {
  const bool is_data = part == Part::kData;
  return fmt::format("symm/{}/{}/{}/{:016x}", record.number, record.rank, is_data ? "data" : "pad",
                     is_data ? record.block_cookie : record.pad_cookie);
}

}  // namespace

HandOver::HandOver(Group& group, std::span<const Record> table)
    : group_(group),
      store_(group.store()),
      table_(table),
      deadline_(Deadline::after(group.config().rendezvous_timeout)) {}

HandOver::~HandOver() {
  for (const std::string& key : keys_) (void)store_.erase(key);  // a store that is gone has forgotten it
}

void HandOver::restart_deadline() {
  deadline_ = Deadline::after(group_.config().rendezvous_timeout);
}

Result<HandOver::Object> HandOver::share(std::string_view name, FunctionRef<Result<Object>()> make) {
  const std::string& key = keys_.emplace_back(fmt::format("symm/{}/{}", table_.front().number, name));
  constexpr auto kNoTime = std::chrono::nanoseconds(0);
  if (auto found = store_.get_object(key, Deadline::after(kNoTime))) return found;
  TANDEM_ASSIGN(Object made, make());
  if (store_.set_object(key, made)) return made;
  return store_.get_object(key, Deadline::after(kNoTime));  // another thread was first
}

Result<void> HandOver::give(Part part, const Object& memory, int file) {
  if (group_.size() == 1) return {};
  const Record& mine = table_[static_cast<std::size_t>(group_.rank())];
  const std::string& key = keys_.emplace_back(key_of(mine, part));
  const auto sent = carries_files() ? store_.set_file(key, file) : store_.set_object(key, memory);
  if (!sent) return give_up(mine, part, sent.error());
  return {};
}

Result<HandOver::Object> HandOver::take(const Record& from, Part part,
                                        FunctionRef<Result<Object>(const UniqueFd&)> import) {
  // Ends early when the group is poisoned: Group::store() sees to it.
  const auto receive = [&]() -> Result<Object> {
    const std::string key = key_of(from, part);
    if (!carries_files()) return store_.get_object(key, deadline_);
    TANDEM_ASSIGN(const UniqueFd file, store_.get_file(key, deadline_));
    return import(file);
  };
  auto received = receive();
  if (!received) return give_up(from, part, received.error());
  return received;
}

Result<void> HandOver::finish() {
  TANDEM_TRY(group_.all_gather({}, "rendezvous end"));
  return {};
}

tl::unexpected<Error> HandOver::give_up(const Record& peer, Part part, const Error& why) {
  Error error(why.code(),
              fmt::format("rendezvous: rank {} cannot use the {} of rank {} (pid {}): {}", group_.rank(),
                          part == Part::kData ? "data" : "signal pad", peer.rank, peer.pid, why.text()),
              why.native_code());
  group_.poison(error, peer.rank);
  return tl::unexpected(group_.status() ? error : group_.status().error());
}

}  // namespace tandem::symm
