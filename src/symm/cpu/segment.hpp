#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/unique_fd.hpp>

namespace tandem::symm::cpu {

/// A page of header, never mapped, then the data. The header is what a receiver reads before it maps
/// anything.
struct SegmentHeader {
  std::uint64_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t reserved = 0;
  std::uint64_t cookie = 0;
  std::int64_t num_bytes = 0;
};

/// What a receiver of a segment expects it to be.
struct SegmentName {
  std::int64_t num_bytes = 0;
  std::uint64_t cookie = 0;
};

/// Anonymous shared memory with inaccessible guard pages on both sides: an overrun faults in the program that
/// made it instead of damaging somebody's signals. Sealed, so that no peer can shrink it under a reader
/// (SIGBUS).
class Segment {
 public:
  /// Zeroed, with all pages present. Errors: kOutOfMemory with the bytes asked for; kDriver.
  [[nodiscard]] static Result<std::shared_ptr<Segment>> create(std::int64_t num_bytes);
  /// Addresses without memory: touching them faults until fill() or attach() has put some there.
  [[nodiscard]] static Result<std::shared_ptr<Segment>> reserve(std::int64_t num_bytes);
  /// New memory at the reserved addresses, as from create().
  [[nodiscard]] Result<void> fill(std::uint64_t cookie);
  /// What another process sent, at the reserved addresses; as import().
  [[nodiscard]] Result<void> attach(const UniqueFd& fd, std::uint64_t cookie);
  /// Maps what another process sent. Errors: kInvalidArgument, with the reason, unless `fd` is a sealed
  /// memory file of the size and cookie of `expected`; nothing is mapped then.
  [[nodiscard]] static Result<std::shared_ptr<Segment>> import(const UniqueFd& fd,
                                                               const SegmentName& expected);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::int64_t size_bytes() const { return name_.num_bytes; }
  [[nodiscard]] const SegmentName& name() const { return name_; }
  /// -1 for an imported segment.
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// For memory that nobody new will map.
  void close_fd() { fd_.reset(); }

 private:
  explicit Segment(const SegmentName& name) : name_(name) {}
  Result<void> reserve_addresses();
  Result<void> map(int fd);

  SegmentName name_;
  UniqueFd fd_;
  void* data_ = nullptr;
  void* region_ = nullptr;  // guard, data, guard
  std::int64_t region_bytes_ = 0;
};

}  // namespace tandem::symm::cpu
