#include "gemm/cuda/sm90/async_input.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"
#include "gemm/cuda/max_products.hpp"
#include "gemm/cuda/native.hpp"
#include "gemm/cuda/sm90/async_input_parts.hpp"
#include "gemm/cuda/sm90/instances.hpp"

namespace tandem::gemm::cuda {
namespace {

using tandem::cuda::check_cuda;
using tandem::cuda::CudaStream;
using tandem::cuda::CurrentDevice;
using tandem::cuda::Waits;

Result<ResidentKernel> make_resident(const AsyncInputKernel& kernel) {
  TANDEM_TRY(check_cuda(
      "async_input_mm: load kernels",
      cudaFuncSetAttribute(kernel.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kernel.shared_bytes)));
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(kernel.tiling.cluster_rows);
  cluster.val.clusterDim.y = static_cast<unsigned>(kernel.tiling.cluster_columns);
  cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(cluster.val.clusterDim.x, cluster.val.clusterDim.y);
  config.blockDim = dim3(kAsyncInputThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(kernel.shared_bytes);
  config.attrs = &cluster;
  config.numAttrs = 1;
  ResidentKernel resident{.kernel = &kernel, .most_clusters = 0};
  TANDEM_TRY(check_cuda("async_input_mm: clusters that run at one time",
                        cudaOccupancyMaxActiveClusters(&resident.most_clusters, kernel.kernel, &config)));
  return resident;
}

/// The chunks of `part` among the complete ones, in chunks of the part.
void add_complete(const CompleteChunks& complete, const ChunkPart& part, std::int64_t stride,
                  AsyncInputLaunch& launch) {
  const std::int64_t num_signals = (launch.rows + stride - 1) / stride;
  const std::int64_t begin = std::max<std::int64_t>(complete.first, part.first);
  const std::int64_t end = std::min<std::int64_t>(complete.first + complete.count, part.first + num_signals);
  if (begin >= end) return;
  const std::int64_t skipped_rows = (begin - complete.first) * stride;
  launch.complete = complete.rows.data_as<const std::byte>() +
                    skipped_rows * complete.rows.size(1) * size_bytes(complete.rows.dtype);
  launch.complete_rows = complete.rows.size(0) - skipped_rows;
  launch.complete_begin = static_cast<int>(begin - part.first);
  launch.complete_end = static_cast<int>(end - part.first);
}

AsyncInputLaunch launch_of(const AsyncInputProblem& problem, const AsyncInputMmArgs& args,
                           const ChunkPart& part) {
  const std::int64_t stride = shard_stride(problem.m, static_cast<int>(problem.chunks));
  const std::int64_t first_row = part.first * stride;
  const std::int64_t element = size_bytes(problem.in);
  AsyncInputLaunch launch;
  launch.a = args.a.data_as<const std::byte>() + first_row * problem.k * element;
  launch.b = args.b.data;
  launch.out = args.out.data_as<std::byte>() + first_row * problem.n * element;
  launch.n = problem.n;
  launch.k = problem.k;
  launch.rows = std::min(problem.m - first_row, part.chunks.size() * part.chunks.stride());
  launch.chunks = part.chunks;
  launch.signal_rows = static_cast<int>(stride);
  launch.signals = args.a_chunk_signals.data_as<const std::uint32_t>() + part.first;
  launch.expected = args.expected;
  launch.first_number = part.first;
  if (args.complete) add_complete(*args.complete, part, stride, launch);
  if (args.senders)
    launch.chunks_per_rank = static_cast<int>(std::min(args.senders->chunks_per_rank, problem.chunks));
  launch.start = part.start;
  return launch;
}

bool exchanges_patches(const AsyncInputProblem& problem) {
  return problem.m % problem.chunks == 0 && PatchGrid::accepts(problem.m / problem.chunks, problem.k) &&
         PatchGrid::accepts(problem.m, problem.k);
}

PatchSignals patch_signals(const AsyncInputProblem& problem, const AsyncInputMmArgs& args) {
  const symm::Handle& handle = *args.senders->handle;
  const auto rank = static_cast<std::size_t>(handle.rank());
  const auto* const block = static_cast<const std::byte*>(handle.buffer_ptrs()[rank]);
  return {.stamps = reinterpret_cast<const std::uint32_t*>(block + args.patches->stamps_bytes),
          .k_steps = static_cast<int>(problem.k / PatchGrid::kColumns),
          .tiles_per_chunk = static_cast<int>(problem.m / problem.chunks / PatchGrid::kTileRows),
          .first = static_cast<int>((args.complete->first + args.complete->count) % problem.chunks),
          .count = static_cast<int>(problem.patch_chunks),
          .chunks = static_cast<int>(problem.chunks)};
}

static_assert(kMostPatchPeers == kMostPatchRanks - 1);

PatchPush patch_push(const AsyncInputProblem& problem, const AsyncInputMmArgs& args) {
  const PatchExchange& exchange = *args.patches;
  const TensorView& rows = args.complete->rows;
  const std::int64_t first_row = args.complete->first * (problem.m / problem.chunks);
  PatchPush push;
  if (!exchange.sends || exchange.peers == 0) return push;
  push.grid = PatchGrid(static_cast<int>(rows.size(0) / PatchGrid::kTileRows),
                        static_cast<int>(problem.k / PatchGrid::kColumns));
  push.rows = rows.data_as<const std::byte>();
  const auto first_tile = static_cast<int>(first_row / PatchGrid::kTileRows);
  const std::int64_t rows_bytes = exchange.rows_bytes + first_row * problem.k * size_bytes(problem.in);
  const std::int64_t first_stamp = PatchGrid::stamp(first_tile, push.grid.k_steps(), 0, 0);
  const symm::Handle& handle = *args.senders->handle;
  for (push.peers = 0; push.peers < exchange.peers; ++push.peers) {
    const int peer = (handle.rank() - 1 - push.peers + handle.world_size()) % handle.world_size();
    auto* const block = static_cast<std::byte*>(handle.buffer_ptrs()[static_cast<std::size_t>(peer)]);
    push.to[push.peers] = {
        .rows = block + rows_bytes,
        .stamps = reinterpret_cast<std::uint32_t*>(block + exchange.stamps_bytes) + first_stamp};
  }
  push.stamp = args.expected;
  return push;
}

/// Streams on which products wait without a group that are remembered: memory of a GPU is kept for each.
constexpr std::size_t kMostLoneStreams = 64;

}  // namespace

AsyncInputProducts::AsyncInputProducts(const Device& device)
    : gpu_(device.id().index),
      kernels_(max_products(device)),
      sharing_(device.service<tandem::cuda::SharedGpu>()),
      lone_waits_(kMostLoneStreams) {
  usable_ = Support::yes();
  if (const auto opened = open(device); !opened) usable_ = Support::no(opened.error().text());
}

Result<void> AsyncInputProducts::open(const Device& device) {
  const CurrentDevice current(gpu_);
  int major = 0;
  int minor = 0;
  TANDEM_TRY(
      check_cuda("async_input_mm", cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu_)));
  TANDEM_TRY(
      check_cuda("async_input_mm", cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu_)));
  TANDEM_TRY(check_cuda("async_input_mm",
                        cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, gpu_)));
  if (major != 9 || minor != 0) {
    return failf(ErrorCode::kUnsupported,
                 "the native kernels are for compute capability 9.0, this GPU has {}.{}", major, minor);
  }
  std::vector<ResidentKernel> kernels;
  for (const AsyncInputKernel& kernel : async_input_kernels()) {
    if (!may_run(kernel, device.config().native_kernel)) continue;
    TANDEM_ASSIGN(const ResidentKernel resident, make_resident(kernel));
    kernels.push_back(resident);
  }
  kernels_.assign(std::move(kernels));
  TANDEM_TRY(
      check_cuda("async_input_mm: load kernels", tandem::cuda::load_kernels({exchange_patches_kernel()})));
  return {};
}

bool AsyncInputProducts::accepts(const Problem&, std::string* why_not) const {
  if (why_not != nullptr) *why_not = "has products only whose left operand still arrives";
  return false;
}

Result<void> AsyncInputProducts::run(const Problem&, const MmArgs&, Stream&) const {
  return fail(ErrorCode::kInternal, "cuda/sm90: asked for a plain product");
}

bool AsyncInputProducts::accepts_async_input(const AsyncInputProblem& problem, std::string* why_not) const {
  const auto refuse = [&](std::string_view why) {
    if (why_not != nullptr) *why_not = why;
    return false;
  };
  if (!usable_) return refuse(usable_.why_not);
  if (problem.in != problem.out) return refuse("the native kernels write out in the type of a");
  if (problem.k == 0 || problem.k % 8 != 0 || problem.n % 8 != 0)
    return refuse("the native kernels need k and n to be multiples of 8, and k not 0");
  if (problem.patch_chunks > 0 && !exchanges_patches(problem))
    return refuse("patches need shards of whole tiles of 128 rows, and k a multiple of 64");
  if (problem.m == 0 || (problem.n == 0 && problem.patch_chunks == 0)) return true;
  // Tensor maps take addresses and strides of whole 16 bytes.
  if (!problem.is_aligned)
    return refuse("the native kernels need operands that begin at multiples of 16 bytes");
  constexpr std::int64_t kMost = INT32_MAX;
  if (problem.m > kMost || problem.n > kMost || problem.k > kMost)
    return refuse("the native kernels count rows and columns in 31 bits");
  if (problem.n == 0) return true;
  return kernels_.find({.product = problem, .complete_chunks = 0}, why_not) != nullptr;
}

int AsyncInputProducts::share_of(const ResidentKernel& kernel, bool comes_by_copy_engine) const {
  const int ranks = sharing_ == nullptr ? 1 : sharing_->num_devices();
  if (ranks <= 1 && comes_by_copy_engine) return kernel.most_clusters;
  // Enough for a few copies at a time; a CTA of a product leaves nothing of its multiprocessor to others.
  constexpr int kLeftForCopies = 16;
  const int ctas = (multiprocessors_ - kLeftForCopies) / ranks;
  const Tiling& tiling = kernel.kernel->tiling;
  return std::clamp(ctas / (tiling.cluster_rows * tiling.cluster_columns), 1, kernel.most_clusters);
}

Result<symm::KernelHandle> AsyncInputProducts::waits_of(const AsyncInputMmArgs& args,
                                                        CudaStream& stream) const {
  if (args.senders) return args.senders->handle->kernel_handle();  // async_input_mm() has seen to the watch
  const CurrentDevice current(gpu_);
  const std::lock_guard lock(lone_waits_mutex_);
  std::shared_ptr<LoneWaits>* waits = lone_waits_.find(stream.id());
  if (waits == nullptr || (*waits)->is_spent()) {
    TANDEM_ASSIGN(auto made, LoneWaits::make(stream.device()));
    waits = &lone_waits_.insert(stream.id(), std::move(made));
  }
  stream.add_watch(*waits);
  return (*waits)->handle();
}

Result<void> AsyncInputProducts::run_async_input(const AsyncInputProblem& problem,
                                                 const AsyncInputMmArgs& args, Stream& stream) const {
  TANDEM_ASSIGN(CudaStream* const on, tandem::cuda::cuda_stream(stream, "async_input_mm"));
  if (problem.n == 0) return exchange(problem, args, *on);
  const std::int64_t complete_chunks = args.complete ? args.complete->count : 0;
  const ResidentKernel* const chosen = kernels_.find({problem, complete_chunks}, nullptr);
  if (chosen == nullptr)
    return failf(ErrorCode::kInternal, "cuda/sm90: no kernel for {}", to_string(problem));

  TANDEM_ASSIGN(const symm::KernelHandle waits, waits_of(args, *on));
  const ChunkParts parts(problem.m, static_cast<int>(problem.chunks), static_cast<int>(args.a_chunk_pivot),
                         cut_of(chosen->kernel->tiling, problem));
  return on->enqueue("async_input_mm", Waits::kForPeers, [&](cudaStream_t native) {
    for (const ChunkPart& part : parts.parts()) {
      AsyncInputLaunch launch = launch_of(problem, args, part);
      launch.waits = waits;
      launch.num_clusters = share_of(*chosen, args.senders.has_value() || complete_chunks == problem.chunks);
      if (args.patches) {
        // All of a rank's rows are whole tiles, so this is the only part.
        launch.patches = patch_signals(problem, args);
        launch.push = patch_push(problem, args);
        launch.wave_us = tile_us(chosen->kernel->tiling, problem.k);
      }
      if (const cudaError_t code = chosen->kernel->launch(launch, native); code != cudaSuccess) return code;
    }
    return cudaSuccess;
  });
}

Result<void> AsyncInputProducts::exchange(const AsyncInputProblem& problem, const AsyncInputMmArgs& args,
                                          CudaStream& stream) const {
  PatchPush push = patch_push(problem, args);
  if (push.peers > 0) send_rounds(push, push.peers, kMostPatchesTogether);
  const PatchExchangeLaunch launch{.push = push,
                                   .patches = patch_signals(problem, args),
                                   .expected = args.expected,
                                   .chunks_per_rank = static_cast<int>(args.senders->chunks_per_rank),
                                   .tiles = static_cast<int>(problem.m / PatchGrid::kTileRows),
                                   .waits = args.senders->handle->kernel_handle()};
  return stream.enqueue("async_input_mm", Waits::kForPeers,
                        [&](cudaStream_t on) { return launch_exchange_patches(launch, on); });
}

std::optional<double> AsyncInputProducts::predicted_async_input_us(const AsyncInputProblem& problem,
                                                                   std::int64_t complete_chunks) const {
  const KernelProblem asked{problem, complete_chunks};
  const ResidentKernel* const kernel = kernels_.find(asked, nullptr);
  if (kernel == nullptr) return std::nullopt;
  return cuda::predicted_us(*kernel, asked);
}

std::unique_ptr<Implementation> make_native_products(const Device& device) {
  return std::make_unique<AsyncInputProducts>(device);
}

tandem::cuda::KernelList native_kernels() {
  tandem::cuda::KernelList kernels;
  for (const AsyncInputKernel& one : async_input_kernels()) kernels.push_back(one.kernel);
  kernels.push_back(exchange_patches_kernel());
  return kernels;
}

std::string_view native_name_of(const void* kernel) {
  for (const AsyncInputKernel& one : async_input_kernels()) {
    if (one.kernel == kernel) return one.name;
  }
  return {};
}

}  // namespace tandem::gemm::cuda
