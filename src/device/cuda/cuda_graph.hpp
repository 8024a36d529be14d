#pragma once

#include <cuda_runtime_api.h>

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
  /// `recorded` stays the caller's. The streams' priorities are kept. `stream` is the one that recorded; what
  /// the first launch needs is brought to the device on it. Its watches come along; `keeps_memory`: and stay.
  [[nodiscard]] static Result<std::unique_ptr<Graph>> instantiate(cudaGraph_t recorded, CudaStream& stream,
                                                                  bool keeps_memory);
  /// Launches under way go on; the driver frees the graph when they are done.
  ~CudaGraph() override;

  [[nodiscard]] Result<void> launch(Stream& stream) override;

 private:
  CudaGraph(DeviceId device, Watches watches, bool keeps_memory);

  DeviceId device_;
  Watches watches_;
  std::vector<std::shared_ptr<StreamWatch>> kept_;  ///< each launch uses their memory
  cudaGraphExec_t native_ = nullptr;
};

}  // namespace tandem::cuda
