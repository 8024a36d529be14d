#include "device/cuda/nvtx_profiler.hpp"

#include <nvtx3/nvToolsExtCudaRt.h>

#include <map>
#include <mutex>

#include "device/cuda/cuda_stream.hpp"

namespace tandem::cuda {
namespace {

class NvtxProfiler final : public Profiler {
 public:
  void name_stream(Stream& stream, const std::string& name) override {
    const auto on = cuda_stream(stream, "name_stream");
    if (!on) return;
    const std::lock_guard lock(mutex_);
    std::string& known = names_[stream.id()];
    if (known == name) return;
    known = name;
    const CurrentDevice current((*on)->device_idx());
    nvtxNameCudaStreamA((*on)->native(), name.c_str());
  }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::string> names_;  ///< by the stream's id
};

}  // namespace

std::shared_ptr<Profiler> find_profiler() {
  // Where no tool listens, the call does nothing and says so.
  const int depth = nvtxRangePushA("tandem opens a device");
  if (depth == NVTX_NO_PUSH_POP_TRACKING) return nullptr;
  nvtxRangePop();
  return std::make_shared<NvtxProfiler>();
}

}  // namespace tandem::cuda
