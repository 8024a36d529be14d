#include "device/cuda/cuda_recorder.hpp"

#include <utility>

#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"
#include "device/cuda/cuda_graph.hpp"
#include "device/cuda/cuda_stream.hpp"

namespace tandem::cuda {
namespace {

class CudaRecorder final : public Recorder {
 public:
  explicit CudaRecorder(std::shared_ptr<const SharedGpu> gpu) : gpu_(std::move(gpu)) {}

  bool is_usable() const override { return !gpu_->is_shared(); }
  Result<std::unique_ptr<Graph>> record(const Streams& on, FunctionRef<Result<void>()> steps) override;

 private:
  std::shared_ptr<const SharedGpu> gpu_;
};

/// What `steps` enqueues, still to be instantiated; the caller's to destroy.
Result<cudaGraph_t> capture(CudaStream& stream, FunctionRef<Result<void>()> steps) {
  // Relaxed: what other threads of the process do meanwhile is none of its business.
  TANDEM_TRY(check_cuda("record", cudaStreamBeginCapture(stream.native(), cudaStreamCaptureModeRelaxed)));
  stream.set_recorded_by_library(true);
  const Result<void> enqueued = steps();
  stream.set_recorded_by_library(false);
  cudaGraph_t recorded = nullptr;
  const Result<void> ended = check_cuda("record", cudaStreamEndCapture(stream.native(), &recorded));
  const Result<void>& done = enqueued ? ended : enqueued;
  if (done) return recorded;
  if (recorded != nullptr) static_cast<void>(cudaGraphDestroy(recorded));
  return tl::unexpected(done.error());
}

Result<std::unique_ptr<Graph>> CudaRecorder::record(const Streams& on, FunctionRef<Result<void>()> steps) {
  TANDEM_ASSIGN(CudaStream* const first, cuda_stream(on.first, "record"));
  TANDEM_ASSIGN(CudaStream* const side, cuda_stream(on.side, "record"));
  const CurrentDevice current(first->device().id().index);
  // A graph has the watches of its streams, and shall have those of its own steps only.
  for (CudaStream* stream : {first, side}) stream->forget_watches();
  TANDEM_ASSIGN(cudaGraph_t const recorded, capture(*first, steps));
  auto graph = CudaGraph::instantiate(recorded, *first, CudaGraph::Of::kLibrary);
  static_cast<void>(cudaGraphDestroy(recorded));
  // They have nothing to do but to bring the graph to the device, and were told to keep what the steps use.
  // What the group has failed in before is the caller's stream's to tell.
  const Deadline deadline = Deadline::after(first->device().config().op_timeout);
  for (CudaStream* stream : {first, side}) static_cast<void>(stream->synchronize(deadline));
  return graph;
}

}  // namespace

std::shared_ptr<Recorder> make_recorder(std::shared_ptr<const SharedGpu> gpu) {
  return std::make_shared<CudaRecorder>(std::move(gpu));
}

}  // namespace tandem::cuda
