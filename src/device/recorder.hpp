#pragma once

#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/device/graph.hpp>
#include <tandem/device/stream.hpp>

#include "base/function_ref.hpp"

namespace tandem {

/// Records work that is expected again: a service of devices on which launching a graph costs the host, and
/// the device, less than the calls one by one.
class Recorder {
 public:
  virtual ~Recorder() = default;

  /// Not while ranks that are threads share the device; see Loopback in docs/design/cuda.md.
  [[nodiscard]] virtual bool is_usable() const = 0;

  /// Two idle streams that are used for nothing else.
  struct Streams {
    Stream& first;
    Stream& side;
  };
  /// Runs `steps`, which enqueues on `first`, and on `side` between a wait for `first` and the joining back
  /// to it: all that becomes the graph. It keeps no symmetric memory between launches; who launches it knows
  /// that it is there. It runs with the priority of the stream that it is launched on. Unlike a recording of
  /// the caller's it keeps nobody from making memory meanwhile. Errors: that of `steps`; kDriver.
  [[nodiscard]] virtual Result<std::unique_ptr<Graph>> record(const Streams& on,
                                                              FunctionRef<Result<void>()> steps) = 0;
};

}  // namespace tandem
