// The runtime's functions for streams, events, graphs, kernels and errors, as far as tandem calls them.

#include <algorithm>
#include <string>
#include <utility>

#include "driver_functions.hpp"
#include "gpu.hpp"
#include "last_error.hpp"
#include "launch.hpp"
#include "stream.hpp"

using tandem::simulated::Capture;
using tandem::simulated::Gpu;
using tandem::simulated::Launch;
using tandem::simulated::Mark;
using tandem::simulated::status;

namespace {

thread_local cudaError_t last_error = cudaSuccess;

/// Whether all that has joined a recording comes before its end.
bool is_joined(const Capture& capture) {
  const auto& nodes = capture.graph->nodes;
  std::vector<bool> is_before(nodes.size(), false);
  for (const int last : capture.origin->last_nodes) is_before[static_cast<std::size_t>(last)] = true;
  for (std::size_t i = nodes.size(); i-- > 0;) {
    if (!is_before[i]) continue;
    for (const int before : nodes[i].behind) is_before[static_cast<std::size_t>(before)] = true;
  }
  const auto are_before = [&](const std::vector<int>& last_nodes) {
    return std::all_of(last_nodes.begin(), last_nodes.end(),
                       [&](int last) { return is_before[static_cast<std::size_t>(last)]; });
  };
  return are_before(capture.left_nodes) &&
         std::all_of(capture.joined.begin(), capture.joined.end(),
                     [&](const CUstream_st* stream) { return are_before(stream->last_nodes); });
}

void end(Capture& capture) {
  for (CUstream_st* joined : capture.joined) joined->capture = nullptr;
  capture.is_over = true;
}

/// A stream's GPU has to be the thread's current one where the driver asks for that.
bool is_current(int gpu) {
  int current = -1;
  return cudaGetDevice(&current) == cudaSuccess && current == gpu;
}

/// Breaks the recording that the stream is in, if it is.
cudaError_t refused(const CUstream_st& stream, cudaError_t code) {
  if (stream.capture) stream.capture->is_broken = true;
  return status(code);
}

void add_nodes(std::vector<int>& nodes, const std::vector<int>& more) {
  for (const int node : more) {
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
  }
}

}  // namespace

namespace tandem::simulated {

cudaError_t status(cudaError_t code) {
  if (code != cudaSuccess) last_error = code;
  return code;
}

cudaError_t enqueue_launch(Launch launch, cudaStream_t stream) {
  constexpr unsigned kMostThreads = 1024;
  constexpr unsigned kMostBlocks = 65535;  // in y and z
  if (count_of(launch.grid) == 0 || count_of(launch.block) == 0 || count_of(launch.block) > kMostThreads ||
      launch.grid.y > kMostBlocks || launch.grid.z > kMostBlocks)
    return status(cudaErrorInvalidConfiguration);
  if (!is_current(stream->gpu)) return status(cudaErrorInvalidResourceHandle);
  stream->enqueue([launch = std::move(launch), gpu = stream->gpu] { Gpu::of(gpu).run(launch); });
  return cudaSuccess;
}

}  // namespace tandem::simulated

extern "C" {

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}

const char* cudaGetErrorName(cudaError_t code) {
  switch (code) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    default:
      return "cudaError";
  }
}

const char* cudaGetErrorString(cudaError_t code) {
  thread_local std::string text;
  text = "refused by the simulated GPU, code " + std::to_string(code);
  return text.c_str();
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = new CUstream_st;
  return cudaGetDevice(&(*stream)->gpu);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (const auto capture = stream->capture) {
    std::erase(capture->joined, stream);
    add_nodes(capture->left_nodes, stream->last_nodes);
    if (capture->origin == stream) end(*capture);
  }
  stream->queue->close();
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream->capture) return refused(*stream, cudaErrorStreamCaptureUnsupported);
  return stream->queue->is_empty() ? cudaSuccess : status(cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->capture) return refused(*stream, cudaErrorStreamCaptureUnsupported);
  stream->queue->wait_until_empty();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->capture) {
    if (event->capture->is_over) return refused(*stream, cudaErrorCapturedEvent);
    if (stream->capture && stream->capture != event->capture)
      return refused(*stream, cudaErrorStreamCaptureMerge);
    if (!stream->capture) {
      stream->capture = event->capture;
      stream->capture->joined.push_back(stream);
      stream->last_nodes.clear();
    }
    add_nodes(stream->last_nodes, event->nodes);
    return cudaSuccess;
  }
  if (stream->capture) return refused(*stream, cudaErrorStreamCaptureIsolation);
  if (!event->mark) return cudaSuccess;
  stream->enqueue([mark = event->mark] { mark->wait(); });
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->capture) return status(cudaErrorIllegalState);
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->last_nodes.clear();
  return cudaSuccess;
}

// All recordings are relaxed.
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  *mode = cudaStreamCaptureModeRelaxed;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* answer) {
  *answer = !stream->capture             ? cudaStreamCaptureStatusNone
            : stream->capture->is_broken ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  const auto capture = stream->capture;
  if (!capture) return status(cudaErrorIllegalState);
  if (capture->origin != stream) return status(cudaErrorStreamCaptureUnmatched);
  const bool is_complete = is_joined(*capture);
  end(*capture);
  stream->capture = nullptr;
  if (capture->is_broken) return status(cudaErrorStreamCaptureInvalidated);
  if (!is_complete) return status(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st(*capture->graph);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{.graph = std::make_shared<const CUgraph_st>(*graph)};
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  // One after the other, also on different streams.
  stream->enqueue([graph = exec->graph, running = exec->running] {
    const std::lock_guard lock(*running);
    tandem::simulated::run_graph(*graph);
  });
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaGetDevice(&(*event)->gpu);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event->gpu != stream->gpu) return status(cudaErrorInvalidResourceHandle);
  event->capture = stream->capture;
  event->nodes = stream->last_nodes;
  if (stream->capture) return cudaSuccess;
  event->mark = std::make_shared<Mark>();
  stream->enqueue([mark = event->mark] { mark->pass(); });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->capture) {
    event->capture->is_broken = true;
    return status(cudaErrorCapturedEvent);
  }
  return !event->mark || event->mark->is_passed() ? cudaSuccess : status(cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float* elapsed_ms, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin->mark || !end->mark) return status(cudaErrorInvalidResourceHandle);
  if (!begin->mark->is_passed() || !end->mark->is_passed()) return status(cudaErrorNotReady);
  *elapsed_ms = std::chrono::duration<float, std::milli>(end->mark->time() - begin->mark->time()).count();
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  stream->enqueue([=] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}

cudaError_t cudaFuncGetName(const char** name, const void*) {
  *name = "kernel";
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void*, const cudaLaunchConfig_t* config) {
  // The grid asked for is of one cluster.
  *clusters =
      tandem::simulated::kMultiprocessors / static_cast<int>(tandem::simulated::count_of(config->gridDim));
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** address, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *address = tandem::simulated::driver_function(name);
  *found = *address == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

}  // extern "C"
