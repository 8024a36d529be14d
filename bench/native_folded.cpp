// What four ranks ask of links, stores and waits, on two GPUs: each plays one of four ranks, and sends its
// shard three times to the other, to three places. The kernels and copies are the native gather's; what takes
// their place elsewhere, slots and plans, is not measured.
//   bench_native_folded [ROUNDS [MxNxK ...]]   prints a JSON row for each shape; times in microseconds
// Every native kernel with all of a in place, with shards by copy engine, and in pieces; beside cuBLASLt's
// first eight heuristics. Outputs are compared bit by bit with the first kernel's that has all of a.

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <tandem/cuda/native_stream.hpp>
#include <tandem/tandem.hpp>
#include <vector>

#include "base/try.hpp"
#include "bf16_values.hpp"
#include "device/cuda/cuda_error.hpp"
#include "gemm/chunk_parts.hpp"
#include "gemm/native_model.hpp"
#include "launched_ranks.hpp"
#include "product_table.hpp"

namespace {

using namespace tandem;
using bench::Variant;
using bench::Way;
using gemm::PieceGrid;
using gemm::cuda::AsyncInputLaunch;

constexpr int kRanks = 4;  ///< that are played
constexpr int kWarmup = 3;

struct Shape {
  std::int64_t m = 0, n = 0, k = 0;
  [[nodiscard]] std::int64_t shard_rows() const { return m / kRanks; }
  [[nodiscard]] std::int64_t shard_bytes() const { return shard_rows() * k * 2; }
  [[nodiscard]] gemm::PieceCut cut() const {
    return {.rows = m, .shard_rows = shard_rows(), .shards = kRanks, .row_bytes = 2 * k};
  }
};

class Bench {
 public:
  static Result<Bench> make(const RankContext& context, const Shape& shape, const Config& config);
  Result<nlohmann::json> measure(int rounds);

 private:
  Result<void> fill();
  [[nodiscard]] gemm::Product product() const {
    return bench::product_of(shape_.m, shape_.n, shape_.k, kRanks, false);
  }
  [[nodiscard]] std::byte* block(int rank) const {
    return static_cast<std::byte*>(handle_->buffer_ptrs()[static_cast<std::size_t>(rank)]);
  }
  [[nodiscard]] std::int64_t words_bytes() const { return kRanks * shape_.shard_bytes(); }
  [[nodiscard]] std::int64_t flags_bytes() const { return words_bytes() + 128; }
  Result<void> run(const Variant& variant);
  Result<void> copy_shards();
  void send_in_pieces(AsyncInputLaunch& launch) const;
  Result<double> time(const Variant& variant, int round);
  Result<void> check(Variant& variant);
  /// Of a round the slower GPU's.
  Result<void> take_slower(Variant& variant) const;

  int rank_ = 0;
  Shape shape_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<Stream> stream_, side_;
  Tensor own_, all_, b_, out_, flush_, block_;
  std::shared_ptr<symm::Handle> handle_;
  std::unique_ptr<Event> begin_, end_;
  std::uint32_t epoch_ = 0;
  std::vector<std::uint16_t> reference_;
};

Result<void> Bench::fill() {
  const std::int64_t rows = shape_.shard_rows();
  for (int place = 0; place < kRanks; ++place) {
    const int from = place == 0 ? rank_ : 1 - rank_;
    const auto shard = bench::random_bf16(rows * shape_.k, 1 + static_cast<unsigned>(from));
    TANDEM_TRY(device_->copy_from_host(shard.data(), all_.view().narrow(0, place * rows, rows)));
    if (place == 0) TANDEM_TRY(device_->copy_from_host(shard.data(), own_.view()));
  }
  const auto b = bench::random_bf16(shape_.n * shape_.k, 3);
  TANDEM_TRY(device_->copy_from_host(b.data(), b_.view()));
  const TensorView words =
      TensorView::contiguous(block(rank_), {block_.view().numel() / 4}, DType::kU32, device_->id());
  return stream_->memset32(words, 0, 0, words.numel());
}

Result<Bench> Bench::make(const RankContext& context, const Shape& shape, const Config& config) {
  Bench bench;
  bench.rank_ = context.rank;
  bench.shape_ = shape;
  TANDEM_ASSIGN(bench.device_, open_device({DeviceKind::kCuda, context.rank}, config));
  Device& device = *bench.device_;
  TANDEM_ASSIGN(bench.group_, Group::create({context.rank, context.size, "world", context.store, config}));
  TANDEM_ASSIGN(bench.stream_, device.create_stream());
  TANDEM_ASSIGN(bench.side_, device.create_stream());
  TANDEM_ASSIGN(bench.begin_, device.create_event());
  TANDEM_ASSIGN(bench.end_, device.create_event());
  TANDEM_ASSIGN(bench.own_, device.allocate_tensor({shape.shard_rows(), shape.k}, DType::kBF16));
  TANDEM_ASSIGN(bench.all_, device.allocate_tensor({shape.m, shape.k}, DType::kBF16));
  TANDEM_ASSIGN(bench.b_, device.allocate_tensor({shape.n, shape.k}, DType::kBF16));
  TANDEM_ASSIGN(bench.out_, device.allocate_tensor({shape.m, shape.n}, DType::kBF16));
  TANDEM_ASSIGN(bench.flush_, device.allocate_tensor({64 << 20}, DType::kU32));
  const std::int64_t bytes = bench.flags_bytes() + shape.cut().num_flags() * 4;
  TANDEM_ASSIGN(bench.block_, symm::empty({bytes}, DType::kU8, device));
  TANDEM_ASSIGN(bench.handle_, symm::rendezvous(bench.block_, *bench.group_));
  TANDEM_TRY(bench.handle_->watch(*bench.stream_));
  TANDEM_TRY(bench.fill());
  return bench;
}

/// What copy engines do of an op, one shard behind the other.
Result<void> Bench::copy_shards() {
  const int peer = 1 - rank_;
  TANDEM_TRY(side_->wait(*stream_));
  TANDEM_ASSIGN(const TensorView words, handle_->get_buffer(peer, {kRanks}, DType::kU32, words_bytes() / 4));
  for (std::int64_t place = 1; place < kRanks; ++place) {
    TANDEM_TRY(handle_->put(*side_, own_.view(), peer, place * own_.view().numel()));
    TANDEM_TRY(side_->stream_write_value32(words, place, epoch_));
  }
  return {};
}

void Bench::send_in_pieces(AsyncInputLaunch& launch) const {
  const gemm::PieceCut cut = shape_.cut();
  launch.pieces = gemm::cuda::incoming_pieces(
      cut, 1, reinterpret_cast<const std::uint32_t*>(block(rank_) + flags_bytes()));
  launch.pieces.first = 1;
  launch.pieces.count = kRanks - 1;
  launch.push.grid = PieceGrid(cut, static_cast<int>(shape_.shard_rows()));
  launch.push.rows = own_.view().data_as<const std::byte>();
  launch.push.flag_value = epoch_;
  std::byte* const there = block(1 - rank_);
  for (launch.push.peers = 0; launch.push.peers < kRanks - 1; ++launch.push.peers) {
    const int place = launch.push.peers + 1;
    launch.push.to[launch.push.peers] = {
        .rows = there + place * shape_.shard_bytes(),
        .flags = reinterpret_cast<std::uint32_t*>(there + flags_bytes()) + cut.first_flag(place)};
  }
}

Result<void> Bench::run(const Variant& variant) {
  ++epoch_;
  if (variant.kernel == nullptr) {
    return gemm::mm({.a = all_.view(),
                     .b = b_.view().movedim(0, 1),
                     .out = out_.view(),
                     .bias = {},
                     .heuristic = variant.heuristic},
                    *stream_);
  }
  if (variant.way == Way::kCopies) TANDEM_TRY(copy_shards());
  const bool is_there = variant.way == Way::kThere;
  AsyncInputLaunch launch;
  launch.a = block(rank_);
  launch.b = b_.view().data;
  launch.out = out_.view().data;
  launch.n = shape_.n;
  launch.k = shape_.k;
  launch.rows = shape_.m;
  const gemm::ChunkParts parts(shape_.m, kRanks, 0, gemm::cut_of(variant.kernel->tiling, product()));
  launch.chunks = parts.parts()[0].chunks;  // the only part, of whole tiles
  launch.start = parts.parts()[0].start;
  launch.signal_rows = static_cast<int>(shape_.shard_rows());
  launch.signals = reinterpret_cast<const std::uint32_t*>(block(rank_) + words_bytes());
  launch.expected = epoch_;
  launch.complete = is_there ? all_.view().data : own_.view().data;
  launch.complete_rows = is_there ? shape_.m : shape_.shard_rows();
  launch.complete_end = is_there ? kRanks : 1;
  launch.waits = handle_->kernel_handle();
  launch.num_clusters = bench::resident_on(rank_, *variant.kernel).most_clusters;
  launch.wave_us = gemm::tile_us(*variant.kernel, shape_.k);
  if (variant.way == Way::kPieces) send_in_pieces(launch);
  TANDEM_ASSIGN(const cudaStream_t native, tandem::cuda::native_stream(*stream_));
  TANDEM_TRY(tandem::cuda::check_cuda(variant.name.c_str(), variant.kernel->launch(launch, native)));
  return variant.way == Way::kCopies ? stream_->wait(*side_) : Result<void>();
}

Result<double> Bench::time(const Variant& variant, int round) {
  TANDEM_TRY(stream_->memset32(flush_.view(), 0, round + kWarmup, flush_.view().numel()));
  TANDEM_TRY(handle_->barrier(*stream_));
  TANDEM_TRY(stream_->record(*begin_));
  TANDEM_TRY(run(variant));
  TANDEM_TRY(stream_->record(*end_));
  TANDEM_TRY(stream_->synchronize());
  return end_->elapsed_us(*begin_);
}

Result<void> Bench::check(Variant& variant) {
  const std::int64_t count = out_.view().numel();
  std::vector<std::uint16_t> got(static_cast<std::size_t>(count), 0xffff);
  TANDEM_TRY(device_->copy_from_host(got.data(), out_.view()));
  const TensorView rows =
      TensorView::contiguous(block(rank_), {words_bytes() / 4}, DType::kU32, device_->id());
  TANDEM_TRY(stream_->memset32(rows, 0, 0xffffffffU, rows.numel()));
  TANDEM_TRY(handle_->barrier(*stream_));
  TANDEM_TRY(run(variant));
  TANDEM_TRY(stream_->synchronize());
  TANDEM_TRY(device_->copy_to_host(out_.view(), got.data()));
  if (reference_.empty()) reference_ = got;
  // cuBLASLt adds in an order of its own: a last place of 8 bits.
  variant.wrong = bench::count_wrong(got, reference_, shape_.k, variant.kernel == nullptr ? 0.01 : 0);
  return {};
}

Result<void> Bench::take_slower(Variant& variant) const {
  variant.us.push_back(static_cast<double>(variant.wrong));
  TANDEM_ASSIGN(const auto both, group_->all_gather(std::as_bytes(std::span(variant.us)), variant.name));
  variant.us.pop_back();
  std::vector<double> theirs(variant.us.size() + 1);
  std::memcpy(theirs.data(), both[static_cast<std::size_t>(1 - rank_)].data(),
              theirs.size() * sizeof(double));
  for (std::size_t i = 0; i < variant.us.size(); ++i) variant.us[i] = std::max(variant.us[i], theirs[i]);
  variant.wrong += static_cast<std::int64_t>(theirs.back());
  return {};
}

Result<nlohmann::json> Bench::measure(int rounds) {
  constexpr Way kWays[] = {Way::kThere, Way::kCopies, Way::kPieces};
  std::vector<Variant> all = bench::variants_of(
      product(), rank_, kWays, [&](const Variant& vendor) { return run(vendor).has_value(); });
  for (Variant& variant : all) TANDEM_TRY(check(variant));
  TANDEM_TRY(bench::time_in_turns(all, kWarmup, rounds,
                                  [&](const Variant& variant, int round) { return time(variant, round); }));
  nlohmann::json row = {
      {"what", "native kernels of one of four ranks, folded onto two GPUs"},
      {"m", shape_.m},
      {"n", shape_.n},
      {"k", shape_.k},
      {"gpu", device_->description()},
      {"commit", TANDEM_COMMIT},
      {"command", fmt::format("bench_native_folded {} {}x{}x{}", rounds, shape_.m, shape_.n, shape_.k)},
      {"rounds", rounds}};
  for (Variant& variant : all) TANDEM_TRY(take_slower(variant));
  bench::put_medians(all, row);
  return row;
}

Result<void> run_rank(const RankContext& context, int rounds, const std::vector<Shape>& shapes) {
  TANDEM_ASSIGN(const Config config, Config::from_environment());
  for (const Shape& shape : shapes) {
    TANDEM_ASSIGN(Bench bench, Bench::make(context, shape, config));
    TANDEM_ASSIGN(const nlohmann::json row, bench.measure(rounds));
    if (context.rank != 0) continue;
    std::printf("%s\n", row.dump().c_str());
    std::fflush(stdout);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_launched(argc, argv, [](const bench::Numbers& numbers) {
    std::vector<Shape> shapes;
    bool is_fine = numbers.at(0, 15) >= 1;
    for (std::size_t i = 1; i < numbers.texts().size(); ++i) {
      long long m = 0, n = 0, k = 0;
      const bool is_read = std::sscanf(numbers.texts()[i].c_str(), "%lldx%lldx%lld", &m, &n, &k) == 3;
      const Shape shape{m, n, k};
      const gemm::PieceCut cut = shape.cut();
      is_fine = is_fine && is_read && n > 0 && n % 8 == 0 && cut.is_possible() && !cut.shares_tiles();
      shapes.push_back(shape);
    }
    if (shapes.empty())
      shapes = {{512, 3584, 8192}, {1024, 3584, 8192}, {2048, 3584, 8192}, {4096, 3584, 8192}};
    return bench::LaunchedRanks{
        .program = "bench_native_folded",
        .ranks = 2,
        .refusal = is_fine
                       ? nullptr
                       : "bench_native_folded [ROUNDS >= 1 [MxNxK ...]], M a multiple of 512, N and K of 8",
        .run_rank = [=](const RankContext& context) { return run_rank(context, numbers.at(0, 15), shapes); }};
  });
}
