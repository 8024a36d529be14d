#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <vector>

#include "symm/service.hpp"

namespace tandem::symm {

inline constexpr std::uint64_t kRecordMagic = 0x6d6d79736d646e74;  // "tndmsymm"
inline constexpr std::uint32_t kRecordVersion = 1;

/// What every rank tells every other in a rendezvous; sent as its bytes (same host, same build).
struct Record {
  std::uint64_t magic = kRecordMagic;
  std::uint32_t version = kRecordVersion;
  std::int32_t rank = 0;
  std::int32_t world_size = 0;
  std::int32_t pid = 0;
  std::uint64_t number = 0;  ///< how many rendezvous of this group came before
  std::int64_t block_bytes = 0;
  std::int64_t pad_bytes = 0;
  std::int64_t offset_bytes = 0;
  std::uint64_t sizes_hash = 0;
  std::int64_t ordinal = 0;  ///< for the error text: ranks may allocate in different orders
  std::uint32_t dtype = 0;
  std::uint32_t reserved = 0;
  std::uint64_t block_cookie = 0;
  std::uint64_t pad_cookie = 0;
};
static_assert(sizeof(Record) == 96, "no padding: the bytes are sent");

/// The record of `block` and a pad of `pad_bytes`.
[[nodiscard]] Record make_record(const Group& group, std::uint64_t number, const Block& block,
                                 std::int64_t pad_bytes, std::int64_t offset_bytes, std::uint64_t pad_cookie);

/// "f32 [64, 64], 16384 bytes at 0, block #2, pad of 9216 bytes": what ranks must agree on, for people.
[[nodiscard]] std::string describe(const Block& block, std::int64_t pad_bytes, std::int64_t offset_bytes);

/// The records of placed memory (placed_memory.hpp), which no rank has to send: everything in them follows
/// from the group's life and from `number`, which counts them.
[[nodiscard]] std::vector<Record> placed_records(Group& group, std::uint64_t number, std::int64_t num_bytes,
                                                 std::int64_t pad_bytes);

/// Every rank's record. Collective.
[[nodiscard]] Result<std::vector<Record>> exchange_records(Group& group, const Record& mine);

/// The same verdict on every rank, since all have the same table. Errors: kMismatch listing every rank's
/// values.
[[nodiscard]] Result<std::vector<Record>> parse_records(const std::vector<Store::Bytes>& table);

}  // namespace tandem::symm
