#include "gemm/cuda/sm90/async_input.hpp"

#include <algorithm>

#include <tandem/base/shard.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "cost/machine.hpp"
#include "device/cuda/cuda_error.hpp"
#include "gemm/cuda/max_products.hpp"
#include "gemm/cuda/native.hpp"
#include "gemm/cuda/sm90/instances.hpp"
#include "gemm/cuda/sm90/packed_operands.hpp"
#include "gemm/native_acceptance.hpp"

namespace tandem::gemm::cuda {
namespace {

using tandem::cuda::check_cuda;
using tandem::cuda::CudaStream;
using tandem::cuda::CurrentDevice;
using tandem::cuda::joined;
using tandem::cuda::Waits;

/// Of the kernels that AsyncInputProducts::open() has made resident.
const AsyncInputKernel& launchable(const ResidentKernel& resident) {
  return static_cast<const AsyncInputKernel&>(*resident.kernel);
}

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

/// From a view of one element, of rows or of rows and blocks; null: none.
RowScales row_scales(const TensorView* scale, std::int64_t first_row) {
  if (scale == nullptr) return {};
  const auto* const data = scale->data_as<const float>();
  if (scale->numel() == 1) return {.data = data};
  const TensorView rows = scale->flatten_rows();
  return {.data = data + first_row * rows.stride(0),
          .row_stride = rows.stride(0),
          .block_stride = rows.size(1) == 1 ? 0 : rows.stride(1)};
}

/// `first_row`: of the launch. `complete_row`: the first complete one of all.
SumScales scales_of(const Product& product, const ProductArgs& args, std::int64_t first_row,
                    std::int64_t complete_row) {
  SumScales scales;
  const bool arrives = args.arrival != nullptr && args.arrival->complete_scale;
  const std::int64_t first_complete = std::max(first_row, complete_row);
  scales.rows = row_scales(args.a_scale, first_row);
  scales.complete_rows = arrives ? row_scales(&*args.arrival->complete_scale, first_complete - complete_row)
                                 : row_scales(args.a_scale, first_complete);
  scales.along_k = product.is_scaled_along_k();
  if (args.b_scale != nullptr) {
    scales.columns = args.b_scale->data_as<const float>();
    const bool is_one = product.b_scale == Scale::kTensor;
    scales.column_stride = is_one ? 0 : static_cast<int>(args.b_scale->stride(1));
    scales.block_stride = is_one ? 0 : args.b_scale->stride(0);
  }
  scales.rows_arrive = arrives;
  return scales;
}

ColumnBias column_bias(const TensorView* bias) {
  if (bias == nullptr) return {};
  return {.data = bias->data, .dtype = bias->dtype, .stride = static_cast<int>(bias->stride(0))};
}

/// `first_row`: of the launch.
SumEpilogue epilogue_of(const Product& product, const ProductArgs& args, std::int64_t first_row) {
  SumEpilogue epilogue{.bias = column_bias(args.bias)};
  if (args.result_scale != nullptr) epilogue.result = args.result_scale->data_as<const float>();
  if (args.addend != nullptr) {
    epilogue.addend_dtype = args.addend->dtype;
    epilogue.addend =
        args.addend->data_as<const std::byte>() + first_row * product.n * size_bytes(args.addend->dtype);
  }
  return epilogue;
}

ChunkWaitLog log_of(const ProductArgs& args) {
  return args.chunk_waits == nullptr ? ChunkWaitLog{} : *args.chunk_waits;
}

AsyncInputLaunch launch_of(const Product& product, const ProductArgs& args, const ChunkPart& part) {
  const Arrival& arrival = *args.arrival;
  const std::int64_t stride = shard_stride(product.m, static_cast<int>(product.arrival->count));
  const std::int64_t first_row = part.first * stride;
  AsyncInputLaunch launch;
  launch.a = args.a->data_as<const std::byte>() + first_row * row_bytes_of(product);
  launch.b = args.b->data;
  launch.out = args.out->data_as<std::byte>() + first_row * product.n * size_bytes(product.out);
  launch.n = product.n;
  launch.k = product.k;
  launch.rows = std::min(product.m - first_row, part.chunks.size() * part.chunks.stride());
  launch.chunks = part.chunks;
  launch.signal_rows = static_cast<int>(stride);
  const bool is_shared = shares_tiles(product);  // all rows are read where they arrive, behind pieces' flags
  if (is_shared) launch.signal_rows = static_cast<int>(product.m);
  launch.signals = arrival.signals.data_as<const std::uint32_t>() + part.first;
  launch.expected = arrival.expected;
  launch.first_number = part.first;
  if (arrival.complete && !is_shared) add_complete(*arrival.complete, part, stride, launch);
  if (arrival.senders) {
    launch.chunks_per_rank =
        static_cast<int>(std::min(arrival.senders->chunks_per_rank, product.arrival->count));
  }
  launch.start = part.start;
  launch.log = log_of(args);
  launch.epilogue = epilogue_of(product, args, first_row);
  if (is_f8(product.a)) {
    const std::int64_t complete_row = arrival.complete ? arrival.complete->first * stride : 0;
    launch.scales = scales_of(product, args, first_row, complete_row);
  }
  return launch;
}

/// Of a product whose a is there: one chunk, which is complete.
Arrival already_there(const ProductArgs& args) {
  const TensorView& a = *args.a;
  return {.signals = TensorView::contiguous(nullptr, {1}, DType::kU32, a.device),
          .complete = CompleteChunks{.rows = a.flatten_rows(), .first = 0, .count = 1}};
}
/// With the order in which b lies: fronts tell it of products whose a arrives, or that are scaled along k.
Product of_order(const Product& product, const ProductArgs& args) {
  Product ordered = product;
  ordered.b_is_column_major = lies_by_columns(*args.b);
  return ordered;
}

IncomingPieces pieces_of(const Product& product, const Arrival& arrival) {
  const Chunks& chunks = *product.arrival;
  const symm::Handle& handle = *arrival.senders->handle;
  const auto* const block =
      static_cast<const std::byte*>(handle.buffer_ptrs()[static_cast<std::size_t>(handle.rank())]);
  IncomingPieces pieces =
      incoming_pieces(piece_cut_of(product), static_cast<int>(chunks.complete),
                      reinterpret_cast<const std::uint32_t*>(block + arrival.pieces->flags_bytes));
  if (shares_tiles(product)) {
    pieces.count = pieces.chunks;
  } else {
    pieces.first = static_cast<int>((arrival.complete->first + arrival.complete->count) % chunks.count);
    pieces.count = static_cast<int>(chunks.in_pieces);
  }
  return pieces;
}

static_assert(kMostPiecePeers == kMostPieceRanks - 1);

PiecePush piece_push(const Product& product, const Arrival& arrival) {
  const PieceExchange& exchange = *arrival.pieces;
  PiecePush push;
  if (!exchange.sends || exchange.peers == 0) return push;
  const PieceCut cut = piece_cut_of(product);
  const symm::Handle& handle = *arrival.senders->handle;
  const TensorView& rows = arrival.complete->rows;
  push.grid = PieceGrid(cut, static_cast<int>(rows.size(0)));
  push.rows = rows.data_as<const std::byte>();
  const std::int64_t rows_bytes = exchange.rows_bytes + handle.rank() * cut.shard_rows * cut.row_bytes;
  const std::int64_t first_flag = cut.first_flag(handle.rank());
  const int targets = exchange.peers + (cut.shares_tiles() ? 1 : 0);
  for (push.peers = 0; push.peers < targets; ++push.peers) {
    const int peer = (handle.rank() - 1 - push.peers + handle.world_size()) % handle.world_size();
    auto* const block = static_cast<std::byte*>(handle.buffer_ptrs()[static_cast<std::size_t>(peer)]);
    push.to[push.peers] = {
        .rows = block + rows_bytes,
        .flags = reinterpret_cast<std::uint32_t*>(block + exchange.flags_bytes) + first_flag};
  }
  push.flag_value = arrival.expected;
  return push;
}

/// Memory of a launch of so many clusters.
struct ExchangeRoom {
  std::int64_t staged_bytes = 0;
  int aside_tiles = 0;
  std::int64_t aside_bytes = 0;
};
ExchangeRoom room_of(const NativeKernel& kernel, const Product& product, int num_clusters) {
  const Tiling& tiling = kernel.tiling;
  const int of_cluster = tiling.cluster_rows * tiling.cluster_columns;
  ExchangeRoom room;
  if (partial_grid_of(product.m, product.n, *product.owners).shares_tiles) {
    const int clusters = TileOrder(owners_of(product), product.n, tiling).num_clusters();
    room.aside_tiles = (clusters + num_clusters - 1) / num_clusters;
  } else {
    room.staged_bytes = staged_bytes(num_clusters * of_cluster, tiling.tile_columns);
  }
  room.aside_bytes = aside_bytes(num_clusters * of_cluster, room.aside_tiles, tiling.tile_columns);
  return room;
}

/// Of a product that departs, but what the launch decides.
PartialExchange exchange_of(const Product& product, const ProductArgs& args) {
  const Departure& departure = *args.departure;
  const symm::KernelInboxPlace& place = departure.place;
  PartialExchange exchange{.grid = partial_grid_of(product.m, product.n, *product.owners),
                           .ranks = place.handle->kernel_handle(),
                           .counters_bytes = place.counters_bytes,
                           .words_bytes = place.words_bytes,
                           .words_stride = place.words_stride,
                           .data_bytes = place.data_bytes,
                           .data_stride = place.data_stride,
                           .rows = static_cast<int>(product.m),
                           .shard_rows = static_cast<int>(shard_stride(product.m, product.owners->count)),
                           .n = static_cast<int>(product.n),
                           .gives_all = departure.gives_all,
                           .divisor = departure.divisor,
                           .bias = column_bias(departure.bias),
                           // The same bits on every rank, if all have the sum.
                           .rounds_own = departure.gives_all,
                           .log = log_of(args)};
  if (departure.product != nullptr) exchange.product = departure.product->data;
  return exchange;
}

/// Streams on which products wait without a group that are remembered: memory of a GPU is kept for each.
constexpr std::size_t kMostLoneStreams = 64;

}  // namespace

AsyncInputProducts::AsyncInputProducts(const Device& device)
    : gpu_(device.id().index),
      kernels_(max_products(device)),
      batch_invariant_(device.config().batch_invariant),
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
      check_cuda("async_input_mm: load kernels",
                 tandem::cuda::load_kernels(joined({{exchange_pieces_kernel()}, give_partials_kernels()}))));
  return {};
}

Product AsyncInputProducts::as_arrived(const Product& product) const {
  return gemm::as_arrived(product, kernels_, batch_invariant_);
}

bool AsyncInputProducts::accepts(const Product& product, std::string* why_not) const {
  return accepts_natively(product, {kernels_, batch_invariant_, usable_}, why_not);
}

// A CTA of a product leaves nothing of its multiprocessor to others.
int AsyncInputProducts::share_of(const ResidentKernel& kernel, bool comes_by_copy_engine,
                                 int left_free) const {
  if (!shares_gpu() && comes_by_copy_engine && left_free == 0) return kernel.most_clusters;
  const int ranks = sharing_ == nullptr ? 1 : sharing_->num_devices();
  // Enough for a few copies at a time.
  constexpr int kLeftForCopies = 16;
  const int left = comes_by_copy_engine && !shares_gpu() ? left_free : std::max(left_free, kLeftForCopies);
  const int ctas = (multiprocessors_ - left) / ranks;
  const Tiling& tiling = kernel.kernel->tiling;
  return std::clamp(ctas / (tiling.cluster_rows * tiling.cluster_columns), 1, kernel.most_clusters);
}

Result<symm::KernelHandle> AsyncInputProducts::waits_of(const Arrival& arrival, CudaStream& stream) const {
  if (arrival.senders) return arrival.senders->handle->kernel_handle();  // run() has seen to the watch
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

Result<void> AsyncInputProducts::prepare(const Product& product, const ProductArgs& like,
                                         Stream& stream) const {
  TANDEM_ASSIGN(CudaStream* const on, tandem::cuda::cuda_stream(stream, "async_input_mm: prepare"));
  if (product.owners && !product.owners->is_made) {
    const ResidentKernel* const kernel = kernels_.find(product, nullptr);
    if (kernel != nullptr) {
      const ExchangeRoom room = room_of(*kernel->kernel, product, share_of(*kernel, true));
      TANDEM_TRY(staged_.reserve(room.staged_bytes + room.aside_bytes, *on));
    }
  }
  if (batch_invariant_ && is_there(product)) {
    const PackedOperands operands(like, as_arrived(of_order(product, like)).b_is_column_major);
    TANDEM_TRY(packed_.reserve(operands.scratch_bytes(), *on));
  }
  if (like.arrival != nullptr) TANDEM_TRY(waits_of(*like.arrival, *on));
  return {};
}

Result<void> AsyncInputProducts::multiply_packed(const Product& product, const ProductArgs& args,
                                                 CudaStream& stream) const {
  const Product arrived = as_arrived(of_order(product, args));
  PackedOperands operands(args, arrived.b_is_column_major);
  TANDEM_ASSIGN(std::byte* const scratch, packed_.reserve(operands.scratch_bytes(), stream));
  operands.place(scratch);
  TANDEM_TRY(operands.copy_in(stream));
  const Arrival there = already_there(operands.args());
  ProductArgs arriving = operands.args();
  arriving.arrival = &there;
  TANDEM_TRY(multiply(arrived, arriving, {}, stream));
  return operands.copy_out(stream);
}

Result<void> AsyncInputProducts::run(const Product& product, const ProductArgs& args, Stream& stream) const {
  TANDEM_ASSIGN(CudaStream* const on, tandem::cuda::cuda_stream(stream, "async_input_mm"));
  if (product.owners) return depart(product, args, *on);
  if (args.arrival == nullptr && batch_invariant_) return multiply_packed(product, args, *on);
  if (args.arrival == nullptr) {
    const Arrival there = already_there(args);
    ProductArgs arriving = args;
    arriving.arrival = &there;
    return multiply(as_arrived(product), arriving, {}, *on);
  }
  if (product.n == 0) return exchange(product, *args.arrival, *on);
  TANDEM_ASSIGN(const symm::KernelHandle waits, waits_of(*args.arrival, *on));
  return multiply(product, args, waits, *on);
}

Result<void> AsyncInputProducts::multiply(const Product& product, const ProductArgs& args,
                                          const symm::KernelHandle& waits, CudaStream& on) const {
  const ResidentKernel* const chosen = kernels_.find(product, nullptr);
  if (chosen == nullptr)
    return failf(ErrorCode::kInternal, "cuda/sm90: no kernel for {}", to_string(product));

  const Arrival& arrival = *args.arrival;
  const Chunks& chunks = *product.arrival;
  const ChunkParts parts(product.m, static_cast<int>(chunks.count), static_cast<int>(arrival.pivot),
                         cut_of(chosen->kernel->tiling, product));
  const Waits awaits = chunks.complete == chunks.count ? Waits::kForNobody : Waits::kForPeers;
  return on.enqueue("async_input_mm", awaits, [&](cudaStream_t native) {
    for (const ChunkPart& part : parts.parts()) {
      AsyncInputLaunch launch = launch_of(product, args, part);
      launch.waits = waits;
      launch.num_clusters = share_of(*chosen, arrival.senders.has_value() || chunks.complete == chunks.count,
                                     arrival.left_free);
      launch.begins_early = arrival.begins_early && &part == &parts.parts().front() && !shares_gpu();
      if (arrival.pieces) {
        // A rank's rows are whole tiles, or all ranks' come together: this is the only part.
        launch.pieces = pieces_of(product, arrival);
        launch.push = piece_push(product, arrival);
        launch.wave_us = tile_us(*chosen->kernel, product.k);
      }
      if (const cudaError_t code = launchable(*chosen).launch(launch, native); code != cudaSuccess)
        return code;
    }
    return cudaSuccess;
  });
}

Result<void> AsyncInputProducts::depart(const Product& product, const ProductArgs& args,
                                        CudaStream& stream) const {
  PartialExchange exchange = exchange_of(product, args);
  if (batch_invariant_) exchange.rounds_own = true;
  if (product.owners->is_made) {
    constexpr int kMostCtas = 64;
    const int sharers = sharing_ == nullptr ? 1 : sharing_->num_devices();
    const GivePartialsLaunch launch{.exchange = exchange,
                                    .product = args.a->data,
                                    .is_f32 = product.a == DType::kF32,
                                    .is_half = product.out == DType::kF16,
                                    .out = args.out->data,
                                    .most_ctas = std::min(kMostCtas, multiprocessors_ / (2 * sharers))};
    return stream.enqueue("matmul_reduce_scatter", Waits::kForPeers,
                          [&](cudaStream_t on) { return launch_give_partials(launch, on); });
  }
  const ResidentKernel* const chosen = kernels_.find(product, nullptr);
  if (chosen == nullptr)
    return failf(ErrorCode::kInternal, "cuda/sm90: no kernel for {}", to_string(product));
  const Tiling& tiling = chosen->kernel->tiling;
  AsyncInputLaunch launch;
  launch.complete = args.a->data;
  launch.a = args.a->data;
  launch.b = args.b->data;
  launch.out = args.out->data;
  launch.n = product.n;
  launch.k = product.k;
  launch.rows = product.m;
  launch.chunks = owners_of(product);
  launch.signal_rows = static_cast<int>(product.m);
  launch.complete_rows = product.m;
  launch.complete_end = 1;
  launch.num_clusters = share_of(*chosen, true);
  launch.epilogue = epilogue_of(product, args, 0);
  if (is_f8(product.a)) launch.scales = scales_of(product, args, 0, 0);
  const ExchangeRoom room = room_of(*chosen->kernel, product, launch.num_clusters);
  TANDEM_ASSIGN(std::byte* const memory, staged_.reserve(room.staged_bytes + room.aside_bytes, stream));
  exchange.staged = memory;
  exchange.aside = reinterpret_cast<float4*>(memory + room.staged_bytes);
  exchange.aside_tiles = room.aside_tiles;
  const int ctas = launch.num_clusters * tiling.cluster_rows * tiling.cluster_columns;
  exchange.block_ns = static_cast<int>(PartialGrid::kBytes * ctas / cost::kH200.partial_bytes_per_ns);
  launch.partials = exchange;
  return stream.enqueue("matmul_reduce_scatter", Waits::kForPeers,
                        [&](cudaStream_t on) { return launchable(*chosen).launch(launch, on); });
}

Result<void> AsyncInputProducts::exchange(const Product& product, const Arrival& arrival,
                                          CudaStream& stream) const {
  PiecePush push = piece_push(product, arrival);
  if (push.peers > 0) send_rounds(push, push.peers, kMostPiecesTogether);
  const PieceExchangeLaunch launch{
      .push = push,
      .pieces = pieces_of(product, arrival),
      .expected = arrival.expected,
      .chunks_per_rank = static_cast<int>(arrival.senders->chunks_per_rank),
      .tiles = shares_tiles(product) ? 1 : static_cast<int>(product.m / PieceGrid::kTileRows),
      .waits = arrival.senders->handle->kernel_handle()};
  return stream.enqueue("async_input_mm", Waits::kForPeers,
                        [&](cudaStream_t on) { return launch_exchange_pieces(launch, on); });
}

std::optional<double> AsyncInputProducts::predicted_us(const Product& product,
                                                       const cost::GpuRates& gpu) const {
  return native_product_us(product, kernels_, batch_invariant_, gpu);
}

std::unique_ptr<Implementation> make_native_products(const Device& device) {
  return std::make_unique<AsyncInputProducts>(device);
}

tandem::cuda::KernelList native_kernels() {
  tandem::cuda::KernelList kernels;
  for (const AsyncInputKernel& one : async_input_kernels()) kernels.push_back(one.kernel);
  kernels.push_back(exchange_pieces_kernel());
  return joined({kernels, give_partials_kernels()});
}

std::string_view native_name_of(const void* kernel) {
  for (const AsyncInputKernel& one : async_input_kernels()) {
    if (one.kernel == kernel) return one.name;
  }
  return {};
}

}  // namespace tandem::gemm::cuda
