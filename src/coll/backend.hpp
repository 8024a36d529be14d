#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/device/stream.hpp>

#include "coll/algorithms.hpp"
#include "coll/steps.hpp"

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

/// The collectives on one kind of device, a service of Device.
class Backend {
 public:
  virtual ~Backend() = default;
  /// Enqueues. `args` are checked, and there is at least one element.
  [[nodiscard]] virtual Result<void> reduce_stack(const ReduceStackArgs& args, Stream& stream) = 0;

  /// Most layers that reduce_layers() takes; 0 where kernels cannot read memory of peers. The same on every
  /// rank of a group.
  [[nodiscard]] virtual int max_layers() const { return 0; }
  /// Enqueues, with that barrier, and one before it: all layers are made then. `args` are checked. The same
  /// bits as reduce_stack().
  [[nodiscard]] virtual Result<void> reduce_layers(const ReduceLayersArgs& args, const EndBarrier& end,
                                                   Stream& stream);

  /// Enqueues: see steps.hpp. There is at least one element.
  [[nodiscard]] virtual Result<void> reduce_ranks(const ReduceRanksArgs& args, Stream& stream);

  /// By default those that need no more than copies and the sums above.
  [[nodiscard]] virtual AlgorithmLists algorithms() const;
};

/// The backend of the stream's device, or kUnsupported naming `op`.
[[nodiscard]] Result<Backend*> backend_of(std::string_view op, const Stream& stream);

}  // namespace tandem::coll
