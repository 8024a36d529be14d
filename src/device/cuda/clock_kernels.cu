#include "device/cuda/clock_kernels.hpp"

#include <tandem/cuda/device_words.cuh>

namespace tandem::cuda {
namespace {

// Number and time are one word, so the host needs no order of two.
__global__ void answer_questions(ClockPage* page, std::int64_t limit_ns) {
  const std::int64_t begin_ns = global_time_ns();
  page->begin_ns = begin_ns;
  std::uint32_t last = 0;
  for (;;) {
    const std::uint32_t asked = load_relaxed(&page->asked);
    if (asked == ClockPage::kOver) return;
    // Behind the branch: the timer may be read before a load that nobody has waited for.
    const std::int64_t now_ns = global_time_ns();
    if (asked != last) {
      last = asked;
      store_relaxed(&page->answer, static_cast<std::uint64_t>(now_ns) << 32 | asked);
    } else if (now_ns - begin_ns > limit_ns) {
      return;
    }
  }
}

__global__ void note_time(std::int64_t* to) {
  *to = global_time_ns();
}

cudaLaunchConfig_t one_thread(cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(1);
  config.stream = stream;
  return config;
}

}  // namespace

KernelList clock_kernels() {
  KernelList list;
  add_kernels(list, answer_questions, note_time);
  return list;
}

cudaError_t launch_answer_questions(ClockPage* page, std::int64_t limit_ns, cudaStream_t stream) {
  const cudaLaunchConfig_t config = one_thread(stream);
  return cudaLaunchKernelEx(&config, answer_questions, page, limit_ns);
}

cudaError_t launch_note_time(std::int64_t* to, cudaStream_t stream) {
  const cudaLaunchConfig_t config = one_thread(stream);
  return cudaLaunchKernelEx(&config, note_time, to);
}

}  // namespace tandem::cuda
