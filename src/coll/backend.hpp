#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>

namespace tandem::coll {

/// reduce_stack() over layers that lie anywhere, also in memory of peers.
struct ReduceLayersArgs {
  std::span<const void* const> layers;  ///< in the order of the sum; each contiguous, of out's sizes
  DType dtype = DType::kF32;            ///< of the layers
  TensorView out;                       ///< any strides
  ReduceOp op = ReduceOp::kSum;
  std::optional<TensorView> bias;  ///< as in ReduceStackArgs
};

/// Layers that lie anywhere, also in memory of peers, one behind the other.
struct GatherLayersArgs {
  std::span<const void* const> layers;
  int first = 0;  ///< the layer to read first
  std::int64_t layer_bytes = 0;
  void* out = nullptr;
};

/// A barrier() beside a kernel: at the kernel's own end, or before a library's.
struct RanksMeet {
  symm::Handle& workspace;
  Group& group;
  int channel = 0;
};

/// The kernels of the collectives on one kind of device, a service of Device.
class Backend {
 public:
  static constexpr std::string_view kServiceName = "coll";
  virtual ~Backend() = default;
  /// Enqueues. `args` are checked, and there is at least one element.
  [[nodiscard]] virtual Result<void> reduce_stack(const ReduceStackArgs& args, Stream& stream) = 0;

  /// Most layers that reduce_layers() takes; 0 where kernels cannot read memory of peers. The same on every
  /// rank of a group.
  [[nodiscard]] virtual int max_layers() const { return 0; }
  /// Enqueues, with the meeting. `args` are checked, and there is at least one element. The same bits as
  /// reduce_stack().
  [[nodiscard]] virtual Result<void> reduce_layers(const ReduceLayersArgs& args, const RanksMeet& meet,
                                                   Stream& stream);

  /// Whether kernels gather layers of this size, at addresses that are multiples of 16 bytes. The same on
  /// every rank of a group.
  [[nodiscard]] virtual bool gathers_layers(std::int64_t /*layer_bytes*/) const { return false; }
  /// Enqueues, with the meeting; false, and nothing is enqueued, where this rank's addresses do not fit.
  [[nodiscard]] virtual Result<bool> gather_layers(const GatherLayersArgs& args, const RanksMeet& meet,
                                                   Stream& stream);

  /// Enqueues a gather by a library of the vendor's, which has no deadline of its own: the ranks meet before
  /// it. False, on every rank, and nothing is enqueued, where there is none for it. Collective: may block the
  /// host at a group's first gather. `args` are checked and agreed on.
  [[nodiscard]] virtual Result<bool> all_gather(const AllGatherArgs& args, const RanksMeet& meet,
                                                Stream& stream);
};

/// The backend of the stream's device, or kUnsupported naming `op`.
[[nodiscard]] Result<Backend*> backend_of(std::string_view op, const Stream& stream);

}  // namespace tandem::coll
