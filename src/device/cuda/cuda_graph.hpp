#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <tandem/base/tensor.hpp>
#include <tandem/device/graph.hpp>
#include <vector>

#include "device/cuda/watch_list.hpp"

namespace tandem::cuda {

class CudaStream;

/// A recording of streams of one GPU, ready to be launched. Launches of one graph never overlap.
class CudaGraph final : public Graph {
 public:
  /// Whose recording it is. The caller's keeps what it works with alive, and the priorities of its streams;
  /// the library's keeps nothing, and has the priority of the stream that it is launched on.
  enum class Of : std::uint8_t { kCaller, kLibrary };
  /// `recorded` stays the caller's. `stream` is the one that recorded: its watches come along, and what the
  /// first launch needs is brought to the device on it.
  [[nodiscard]] static Result<std::unique_ptr<Graph>> instantiate(cudaGraph_t recorded, CudaStream& stream,
                                                                  Of whose);
  /// Launches under way go on; the driver frees the graph when they are done.
  ~CudaGraph() override;

  [[nodiscard]] Result<void> launch(Stream& stream) override;

 private:
  CudaGraph(DeviceId device, Watches watches, Of whose);

  DeviceId device_;
  Watches watches_;
  std::vector<std::shared_ptr<StreamWatch>> kept_;  ///< each launch uses their memory
  cudaGraphExec_t native_ = nullptr;
};

}  // namespace tandem::cuda
