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
  explicit CudaRecorder(std::shared_ptr<InternalStream> internal) : internal_(std::move(internal)) {}

  bool is_usable() const override { return !internal_->is_shared(); }
  Result<std::unique_ptr<Graph>> record(Stream& on, FunctionRef<Result<void>()> steps) override;

 private:
  std::shared_ptr<InternalStream> internal_;
};

Result<std::unique_ptr<Graph>> CudaRecorder::record(Stream& on, FunctionRef<Result<void>()> steps) {
  TANDEM_ASSIGN(CudaStream* const stream, cuda_stream(on, "record"));
  const CurrentDevice current(stream->device().id().index);
  // Relaxed: what other threads of the process do meanwhile is none of its business.
  TANDEM_TRY(check_cuda("record", cudaStreamBeginCapture(stream->native(), cudaStreamCaptureModeRelaxed)));
  stream->set_recorded_by_library(true);
  const Result<void> enqueued = steps();
  stream->set_recorded_by_library(false);
  cudaGraph_t recorded = nullptr;
  const cudaError_t code = cudaStreamEndCapture(stream->native(), &recorded);
  Result<std::unique_ptr<Graph>> graph = nullptr;
  if (!enqueued) {
    graph = tl::unexpected(enqueued.error());
  } else if (code != cudaSuccess) {
    graph = tl::unexpected(cuda_error("record", code));
  } else {
    graph = CudaGraph::instantiate(recorded, *stream, false);
  }
  if (recorded != nullptr) static_cast<void>(cudaGraphDestroy(recorded));
  return graph;
}

}  // namespace

std::shared_ptr<Recorder> make_recorder(std::shared_ptr<InternalStream> internal) {
  return std::make_shared<CudaRecorder>(std::move(internal));
}

}  // namespace tandem::cuda
