#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>

#include "coll/predict.hpp"

namespace tandem::coll {

/// reduce_stack() over layers that lie anywhere, also in memory of peers, and may be empty.
struct ReduceLayersArgs {
  std::span<const void* const> layers;  ///< in the order of the sum; each contiguous, of out's sizes
  DType dtype = DType::kF32;            ///< of the layers
  TensorView out;                       ///< any strides
  ReduceOp op = ReduceOp::kSum;
  std::optional<TensorView> bias;  ///< as in ReduceStackArgs
  std::int64_t largest_bytes = 0;  ///< of a layer of the rank that has the largest; the same on every rank
};

/// A barrier() beside a kernel: at the kernel's own end, or before a library's. `channel` + 1 is for a
/// barrier before a kernel, where that takes a kernel of its own.
struct EndBarrier {
  symm::Handle& workspace;
  Group& group;
  int channel = 0;
};

/// The kernels of the collectives on one kind of device, a service of Device.
class Backend {
 public:
  virtual ~Backend() = default;
  /// Enqueues. `args` are checked, and there is at least one element.
  [[nodiscard]] virtual Result<void> reduce_stack(const ReduceStackArgs& args, Stream& stream) = 0;

  /// See predict.hpp. By default there is no model.
  [[nodiscard]] virtual std::optional<double> predicted_us(Collective collective, std::int64_t part_bytes,
                                                           int world) const;

  /// Most layers that reduce_layers() takes; 0 where kernels cannot read memory of peers. The same on every
  /// rank of a group.
  [[nodiscard]] virtual int max_layers() const { return 0; }
  /// Enqueues, with that barrier, and one before it: all layers are made then. `args` are checked. The same
  /// bits as reduce_stack().
  [[nodiscard]] virtual Result<void> reduce_layers(const ReduceLayersArgs& args, const EndBarrier& end,
                                                   Stream& stream);

  // Whole collectives, where the backend has a way of its own. False, on every rank, and nothing is enqueued,
  // where it has none for this one. Collective: may block the host at a group's first call. `args` are
  // checked and agreed on, and there is at least one element.
  /// `end`: the barrier is there, or before a library that has no deadline of its own.
  [[nodiscard]] virtual Result<bool> all_gather(const AllGatherArgs& args, const EndBarrier& end,
                                                Stream& stream);
  [[nodiscard]] virtual Result<bool> reduce_scatter(const ReduceScatterArgs& args, Group& group,
                                                    Stream& stream);
};

/// The backend of the stream's device, or kUnsupported naming `op`.
[[nodiscard]] Result<Backend*> backend_of(std::string_view op, const Stream& stream);

}  // namespace tandem::coll
