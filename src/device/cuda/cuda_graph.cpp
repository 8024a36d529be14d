#include "device/cuda/cuda_graph.hpp"

#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"
#include "device/cuda/cuda_stream.hpp"

namespace tandem::cuda {

Result<std::unique_ptr<Graph>> CudaGraph::instantiate(cudaGraph_t recorded, CudaStream& stream, Of whose) {
  const DeviceId device = stream.device().id();
  const CurrentDevice current(device.index);
  std::unique_ptr<CudaGraph> graph(new CudaGraph(device, stream.watches(), whose));
  const unsigned flags = whose == Of::kCaller ? cudaGraphInstantiateFlagUseNodePriority : 0;
  TANDEM_TRY(check_cuda("instantiate graph", cudaGraphInstantiate(&graph->native_, recorded, flags)));
  // Or the first launch would do it, perhaps while kernels of other ranks wait for that launch.
  TANDEM_TRY(stream.enqueue("upload graph", Waits::kForNobody,
                            [&](cudaStream_t on) { return cudaGraphUpload(graph->native_, on); }));
  return graph;
}

CudaGraph::CudaGraph(DeviceId device, Watches watches, Of whose)
    : device_(device), watches_(std::move(watches)) {
  if (whose == Of::kLibrary) return;
  for (const auto& watch : watches_) {
    if (auto alive = watch.lock()) kept_.push_back(std::move(alive));
  }
}

CudaGraph::~CudaGraph() {
  if (native_ == nullptr) return;
  const CurrentDevice current(device_.index);
  static_cast<void>(cudaGraphExecDestroy(native_));
}

Result<void> CudaGraph::launch(Stream& stream) {
  TANDEM_ASSIGN(CudaStream * target, cuda_stream(stream, "launch"));
  if (!(stream.device().id() == device_)) {
    return failf(ErrorCode::kInvalidArgument, "launch: the graph was recorded on {}, the stream is of {}",
                 to_string(device_), to_string(stream.device().id()));
  }
  for (const auto& watch : watches_) {
    if (const auto alive = watch.lock()) target->add_watch(alive);
  }
  return target->enqueue("launch", Waits::kForPeers,
                         [&](cudaStream_t on) { return cudaGraphLaunch(native_, on); });
}

}  // namespace tandem::cuda
