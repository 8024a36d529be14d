#include "symm/exchange.hpp"

#include <unistd.h>

#include <cstring>

#include "base/format.hpp"
#include "base/try.hpp"
#include "bootstrap/control_memory.hpp"

namespace tandem::symm {
namespace {

// Any word gives another; distinct ones give distinct ones (splitmix64).
std::uint64_t mix(std::uint64_t word) {
  word += 0x9e3779b97f4a7c15;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
  word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
  return word ^ (word >> 31);
}

// FNV-1a over the sizes.
std::uint64_t hash_of(const Dims& sizes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::int64_t size : sizes) {
    for (int byte = 0; byte < 8; ++byte) {
      hash = (hash ^ (static_cast<std::uint64_t>(size) >> (8 * byte) & 0xffU)) * 0x100000001b3;
    }
  }
  return hash;
}

bool is_same(const Record& x, const Record& y) {
  return x.number == y.number && x.block_bytes == y.block_bytes && x.pad_bytes == y.pad_bytes &&
         x.offset_bytes == y.offset_bytes && x.sizes_hash == y.sizes_hash && x.dtype == y.dtype;
}

std::string describe(const Record& record) {
  return fmt::format(
      "rank {} (pid {}): rendezvous #{} of {} block #{}, {} bytes at {}, sizes hash {:x}, pad {} bytes",
      record.rank, record.pid, record.number, to_string(static_cast<DType>(record.dtype)), record.ordinal,
      record.block_bytes, record.offset_bytes, record.sizes_hash, record.pad_bytes);
}

}  // namespace

std::string describe(const Block& block, std::int64_t pad_bytes, std::int64_t offset_bytes) {
  // The block's ordinal is left out: ranks that belong to different groups have made different numbers of
  // blocks.
  return fmt::format("rendezvous of {} {}, {} bytes, offset {}, pad of {} bytes", to_string(block.dtype()),
                     to_string(block.sizes()), block.size_bytes(), offset_bytes, pad_bytes);
}

Record make_record(const Group& group, std::uint64_t number, const Block& block, std::int64_t pad_bytes,
                   std::int64_t offset_bytes, std::uint64_t pad_cookie) {
  Record record;
  record.rank = group.rank();
  record.world_size = group.size();
  record.pid = static_cast<std::int32_t>(::getpid());
  record.number = number;
  record.block_bytes = block.size_bytes();
  record.pad_bytes = pad_bytes;
  record.offset_bytes = offset_bytes;
  record.sizes_hash = hash_of(block.sizes());
  record.ordinal = block.ordinal();
  record.dtype = static_cast<std::uint32_t>(block.dtype());
  record.block_cookie = block.cookie();
  record.pad_cookie = pad_cookie;
  return record;
}

std::vector<Record> placed_records(Group& group, std::uint64_t number, std::int64_t num_bytes,
                                   std::int64_t pad_bytes) {
  constexpr std::uint64_t kPlaced = std::uint64_t{1} << 63;  // apart from those of rendezvous
  const auto& memory = *bootstrap::control_of(group).memory();
  // The nonce names this life of the group, so memory of an earlier one is never taken for it.
  const std::uint64_t base = mix(memory.header().identity.nonce ^ mix(kPlaced | number));
  std::vector<Record> records(static_cast<std::size_t>(group.size()));
  for (int r = 0; r < group.size(); ++r) {
    Record& record = records[static_cast<std::size_t>(r)];
    record.rank = r;
    record.world_size = group.size();
    record.pid = memory.rank(r).process.pid;
    record.number = kPlaced | number;
    record.block_bytes = num_bytes;
    record.pad_bytes = pad_bytes;
    record.dtype = static_cast<std::uint32_t>(DType::kU8);
    record.block_cookie = mix(base ^ static_cast<std::uint64_t>(2 * r));
    record.pad_cookie = mix(base ^ static_cast<std::uint64_t>(2 * r + 1));
  }
  return records;
}

Result<std::vector<Record>> exchange_records(Group& group, const Record& mine) {
  TANDEM_ASSIGN(const std::vector<Store::Bytes> table,
                group.all_gather(std::as_bytes(std::span(&mine, 1)), "rendezvous"));
  auto records = parse_records(table);
  if (!records) group.poison(records.error(), -1);
  return records;
}

Result<std::vector<Record>> parse_records(const std::vector<Store::Bytes>& table) {
  std::vector<Record> records(table.size());
  for (std::size_t q = 0; q < table.size(); ++q) {
    Record& record = records[q];
    if (table[q].size() == sizeof(Record)) std::memcpy(&record, table[q].data(), sizeof(Record));
    if (table[q].size() != sizeof(Record) || record.magic != kRecordMagic ||
        record.version != kRecordVersion) {
      return failf(ErrorCode::kMismatch,
                   "rendezvous: rank {} sent {} bytes, magic {:x}, version {}; need {} bytes, magic {:x}, "
                   "version {}: run the "
                   "same build of tandem on all ranks",
                   q, table[q].size(), record.magic, record.version, sizeof(Record), kRecordMagic,
                   kRecordVersion);
    }
    if (record.rank != static_cast<int>(q) || record.world_size != static_cast<int>(table.size())) {
      return failf(ErrorCode::kMismatch, "rendezvous: rank {} of {} says that it is rank {} of {}", q,
                   table.size(), record.rank, record.world_size);
    }
    if (record.dtype >= kNumDTypes || record.block_bytes < 0 || record.pad_bytes < 0) {
      return failf(ErrorCode::kMismatch, "rendezvous: rank {} sent dtype {}, {} bytes, pad of {} bytes", q,
                   record.dtype, record.block_bytes, record.pad_bytes);
    }
  }
  for (const Record& record : records) {
    if (is_same(record, records.front())) continue;
    std::string text = "rendezvous: the ranks differ";
    for (const Record& each : records) text += fmt::format("\n  {}", describe(each));
    return fail(ErrorCode::kMismatch, std::move(text));
  }
  return records;
}

}  // namespace tandem::symm
