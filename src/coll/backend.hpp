#pragma once

#include <cstdint>
#include <memory>
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

/// A tensor in which to look for NaN.
struct NanCheckArgs {
  TensorView input;
  std::string_view op;      ///< as an error names it: "all_gather f32 [8, 4]"
  std::string_view tensor;  ///< "input"
};

/// The collectives on one kind of device, a service of Device.
class Backend {
 public:
  virtual ~Backend() = default;
  /// Enqueues. `args` are checked, and there is at least one element.
  [[nodiscard]] virtual Result<void> reduce_stack(const ReduceStackArgs& args, Stream& stream) = 0;

  // What leaves the multiprocessors to work on other streams. By default the stream's core does it.

  /// Whether devices of this kind have engines that copy. The same on every rank of a group.
  [[nodiscard]] virtual bool has_copy_engines() const { return false; }
  /// Whether they do the copies of this stream, so that those of two streams overlap.
  [[nodiscard]] virtual bool uses_copy_engines(const Stream& /*stream*/) const { return false; }
  /// Whether copy_aside() takes these views, of equal sizes and types. Depends on sizes and strides alone.
  [[nodiscard]] virtual Answer can_copy_aside(const TensorView& /*from*/, const TensorView& /*to*/) const {
    return Answer::yes();
  }
  /// Stream::copy() of views that can_copy_aside() takes.
  [[nodiscard]] virtual Result<void> copy_aside(const TensorView& from, const TensorView& to, Stream& stream);
  /// reduce_stack() with a block for each multiprocessor.
  [[nodiscard]] virtual Result<void> reduce_stack_aside(const ReduceStackArgs& args, Stream& stream) {
    return reduce_stack(args, stream);
  }
  /// The same of layers that lie in own memory, at most max_layers() of them.
  [[nodiscard]] virtual Result<void> reduce_layers_aside(const ReduceLayersArgs& args, Stream& stream);

  /// Most layers that reduce_layers() takes; 0 where kernels cannot read memory of peers. The same on every
  /// rank of a group.
  [[nodiscard]] virtual int max_layers() const { return 0; }
  /// Enqueues, with that barrier, and one before it: all layers are made then. `args` are checked. The same
  /// bits as reduce_stack().
  [[nodiscard]] virtual Result<void> reduce_layers(const ReduceLayersArgs& args, const EndBarrier& end,
                                                   Stream& stream);

  /// Enqueues: see steps.hpp. There is at least one element.
  [[nodiscard]] virtual Result<void> reduce_ranks(const ReduceRanksArgs& args, Stream& stream);

  /// Enqueues a look at each element. What it finds is the group's error: see symm::reporter_of(). The
  /// stream watches `reporter`, and the input has elements of a floating type.
  [[nodiscard]] virtual Result<void> look_for_nan(const NanCheckArgs& args,
                                                  const std::shared_ptr<symm::Handle>& reporter,
                                                  Stream& stream);

  /// By default those that need no more than copies and the sums above.
  [[nodiscard]] virtual AlgorithmLists algorithms() const;
};

/// The backend of the stream's device, or kUnsupported naming `op`.
[[nodiscard]] Result<Backend*> backend_of(std::string_view op, const Stream& stream);

}  // namespace tandem::coll
