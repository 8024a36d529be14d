#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>
#include <vector>

#include "base/executor.hpp"
#include "base/home_process.hpp"
#include "bootstrap/control.hpp"
#include "symm/chunk_words.hpp"

namespace tandem::symm {

/// What a rank tells the others about its block and its pad. The two cookies are random: they name the memory
/// in the store and are checked again in the memory's own header, so that a stale key or a recycled address
/// is never taken for it.
struct Record;

/// The blocks of a device by address. Shared by the service and its blocks: a block may outlive the device.
class BlockIndex;

/// One allocation of this rank. A leaf derives from it and unmaps in the destructor, without touching the
/// device.
class Block {
 public:
  Block(Device& device, void* data, std::int64_t num_bytes, std::uint64_t cookie)
      : device_(device), data_(data), num_bytes_(num_bytes), cookie_(cookie) {}
  virtual ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  [[nodiscard]] Device& device() const { return device_; }
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::int64_t size_bytes() const { return num_bytes_; }
  [[nodiscard]] std::uint64_t cookie() const { return cookie_; }
  /// What empty() was asked for.
  [[nodiscard]] const Dims& sizes() const { return sizes_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  /// Position among the blocks of this device, from 0: tells apart, in an error, blocks of equal sizes.
  [[nodiscard]] std::int64_t ordinal() const { return ordinal_; }

 private:
  friend class BlockIndex;
  Device& device_;
  void* data_;
  std::int64_t num_bytes_;
  std::uint64_t cookie_;
  Dims sizes_;
  DType dtype_ = DType::kU8;
  std::int64_t ordinal_ = -1;
  std::shared_ptr<BlockIndex> index_;
};

class BlockIndex {
 public:
  /// Makes `block` known under its addresses until it is destroyed.
  static void add(const std::shared_ptr<BlockIndex>& index, Block& block, const Dims& sizes, DType dtype);
  void remove(const Block& block);
  /// Whether the bytes [first, last) lie in one block.
  [[nodiscard]] bool contains(const void* first, const void* last) const;
  [[nodiscard]] std::int64_t size() const;

 private:
  mutable std::mutex mutex_;
  struct Known {
    std::uintptr_t end = 0;
    std::int64_t ordinal = 0;  ///< of the block that is there; an older one may go after its memory
  };
  std::map<std::uintptr_t, Known> by_begin_;
  std::int64_t num_added_ = 0;
};

/// Every rank's block and pad of one rendezvous, mapped here. What handles (one for each offset) share.
struct Peers {
  virtual ~Peers() = default;
  /// Says whose memory this is, once it is known where that lies.
  void belong_to(Group& its_group, std::shared_ptr<Block> own_block, std::int64_t num_pad_bytes);
  /// Says whose it is, where there is no memory: see Service::make_reporter().
  void belong_to(Group& its_group, Device& its_device);
  /// The last look at the group, which ends: once, before group_alive turns false.
  virtual void see_group_end() {}

  HomeProcess home;
  Group* group = nullptr;  ///< valid while group_alive
  Device* device = nullptr;
  bootstrap::Control* control = nullptr;  ///< valid while group_alive
  int rank = 0;
  int world_size = 1;
  std::shared_ptr<Block> block;
  std::int64_t buffer_bytes = 0;
  std::int64_t pad_bytes = 0;
  std::vector<void*> buffers;
  std::vector<std::uint32_t*> pads;
  std::vector<std::shared_ptr<void>> mappings;  ///< keep `buffers` and `pads` of all ranks alive
  /// Whether the others' memory is there, for the hosts; streams know it by their order.
  std::atomic<bool> is_connected{true};
  ExecutorKey connected_by = 0;  ///< the stream whose work makes it so
  std::atomic<bool> group_alive{true};
  std::shared_mutex group_use;  ///< shared by a task while it uses the group; the group's end waits for it
};

/// This rank's half of a rendezvous: its pad exists, the ranks have not met yet.
class Joining {
 public:
  virtual ~Joining() = default;
  [[nodiscard]] virtual std::uint64_t pad_cookie() const = 0;
  /// Exchanges the memory itself. Collective; `table` has been validated, in rank order. Returns when every
  /// rank is ready to signal: a driver's call that is left to make might wait for kernels of ranks that went
  /// on.
  [[nodiscard]] virtual Result<std::shared_ptr<Peers>> connect(Group& group,
                                                               std::span<const Record> table) = 0;
};

/// One rank's memory and pad, and the addresses at which all ranks' will lie in this process.
struct Placed {
  std::shared_ptr<Block> block;
  std::shared_ptr<Peers> peers;  ///< complete but for the memory of the others
};

/// The part of symmetric memory that differs between backends; one object a device, attached by the leaf.
class Service {
 public:
  virtual ~Service() = default;

  /// Zeroed, all pages present.
  [[nodiscard]] virtual Result<std::shared_ptr<Block>> allocate(std::int64_t num_bytes) = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<Joining>> join(std::shared_ptr<Block> block,
                                                              std::int64_t pad_bytes) = 0;
  /// Whether the ranks can meet in their streams, by place() and enqueue_connect(). Where they cannot, the
  /// hosts agree before memory is exchanged or a new problem's kernels are loaded.
  [[nodiscard]] virtual bool can_place() const { return false; }
  /// Makes this rank's memory and offers it to the others. Local. `records`: those of placed_records().
  [[nodiscard]] virtual Result<Placed> place(Group& group, std::vector<Record> records);
  /// In the order of `stream`: waits until all ranks have placed theirs, and puts it where `peers` says. An
  /// error of that work is the group's.
  [[nodiscard]] virtual Result<void> enqueue_connect(Stream& stream, std::shared_ptr<Peers> peers);
  /// Peers without memory: by their handle, work of this rank reports faults to the group. Local.
  [[nodiscard]] virtual Result<std::shared_ptr<Peers>> make_reporter(Group& group) = 0;
  [[nodiscard]] virtual std::shared_ptr<Handle> make_handle(std::shared_ptr<Peers> peers,
                                                            std::int64_t offset_bytes) = 0;
  /// Control::agree of the group in the order of the stream, or Control::announce where a stream cannot wait
  /// for the other ranks. `patience`: how long it waits there.
  [[nodiscard]] virtual Result<void> enqueue_agreement(Stream& stream, Group& group, std::uint64_t sequence,
                                                       const bootstrap::Fingerprint& fingerprint,
                                                       std::chrono::milliseconds patience) = 0;
  /// Notes in the order of the stream that the work of call `sequence` is done, where a stream can.
  [[nodiscard]] virtual Result<void> enqueue_end(Stream& /*stream*/, Group& /*group*/,
                                                 std::uint64_t /*sequence*/) {
    return {};
  }
  /// See symm::end_call().
  [[nodiscard]] virtual Result<void> end_call(Group& /*group*/) { return {}; }
  /// await_chunks() with one chunk or more, on a stream that watches the handle.
  [[nodiscard]] virtual Result<void> enqueue_chunk_waits(const Handle& handle, const AwaitedChunks& chunks,
                                                         Stream& stream) = 0;
  /// write_word(). By default a write of the stream's.
  [[nodiscard]] virtual Result<void> enqueue_word_write(Handle& handle, int peer, const TensorView& words,
                                                        std::int64_t idx, std::uint32_t value,
                                                        Stream& stream);
  /// cross_link() on a stream that watches the handle. By default kUnsupported.
  [[nodiscard]] virtual Result<void> enqueue_crossing(Handle& handle, const Crossing& crossing,
                                                      Stream& stream);
  /// reset_words() on a stream that watches the handle.
  [[nodiscard]] virtual Result<void> enqueue_word_reset(Handle& handle, const TensorView& words, int channel,
                                                        Stream& stream);
  /// Whether a stream of the device records work for replay: memory must not be made or exchanged then.
  [[nodiscard]] virtual bool is_capturing() const = 0;

  [[nodiscard]] const std::shared_ptr<BlockIndex>& index() const { return index_; }

 private:
  std::shared_ptr<BlockIndex> index_ = std::make_shared<BlockIndex>();
};

/// The block is freed by `frees`, its device's DeferredFrees.
template <class Frees>
[[nodiscard]] std::shared_ptr<Block> freed_behind_work(std::unique_ptr<Block> block, Frees* frees) {
  return {block.release(), [frees = frees->shared_from_this()](Block* freed) {
            frees->free(
                {.object = freed, .free = [](void* object, void*) { delete static_cast<Block*>(object); }});
          }};
}

/// The service of `device`, or kUnsupported.
[[nodiscard]] Result<Service*> service_of(const Device& device);

}  // namespace tandem::symm
