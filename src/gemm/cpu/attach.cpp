#include "gemm/cpu/attach.hpp"

#include <array>
#include <memory>
#include <string>
#include <tandem/cpu/launch.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cpu/core_peaks.hpp"
#include "device/cpu/processor.hpp"
#include "gemm/backend.hpp"
#include "gemm/cpu/async_input_product.hpp"
#include "gemm/cpu/four_bit_implementation.hpp"
#include "gemm/cpu/quantize_rows.hpp"
#include "gemm/cpu/scaled_product.hpp"
#include "gemm/cpu/tile_product.hpp"

namespace tandem::gemm {
namespace {

using cpu::TileProblem;

/// An instruction set by the name that Config::isa has for it; the better, the higher the level.
struct Isa {
  std::string_view name;
  int level;
  const cpu::TileKernels* kernels;
};
constexpr Isa kScalar = {"scalar", 0, &cpu::kTileScalar};
constexpr Isa kAvx2 = {"avx2", 1, &cpu::kTileAvx2};
constexpr Isa kAvx512 = {"avx512", 2, &cpu::kTileAvx512};
/// kAvx512 and VDPBF16PS.
constexpr Isa kAvx512Bf16 = {"avx512_bf16", 3, &cpu::kTileAvx512Bf16};

int level_of(std::string_view name) {
  for (const Isa& isa : {kAvx512Bf16, kAvx512, kAvx2}) {
    if (isa.name == name) return isa.level;
  }
  return kScalar.level;
}

/// Whether the configuration leaves it: what kAvx512Bf16 lacks is kAvx512's.
bool is_left(const Isa& isa, const Config& config) {
  return !config.isa || *config.isa == isa.name ||
         (*config.isa == kAvx512Bf16.name && isa.name == kAvx512.name);
}

Support usable(const Isa& isa, const Config& config) {
  if (!is_left(isa, config)) return Support::no("TANDEM_ISA=" + *config.isa + " excludes it");
  const std::string_view best = tandem::cpu::best_isa();
  if (isa.level <= level_of(best)) return Support::yes();
  return Support::no("this processor's best instruction set is " + std::string(best));
}

cpu::Matrix matrix_of(const TensorView& view) {
  return {.data = view.data, .row_stride = view.stride(0), .col_stride = view.stride(1)};
}

const cpu::Panels& panels_of(const PackedOperand& packed) {
  return static_cast<const cpu::PackedPanels&>(packed).panels();
}

TileProblem tile_problem_of(const Product& product, const ProductArgs& args) {
  TileProblem tile;
  tile.m = product.m;
  tile.n = product.n;
  tile.k = product.k;
  tile.a = matrix_of(*args.a);
  tile.b = matrix_of(*args.b);
  if (args.packed_b != nullptr) tile.packed_b = panels_of(*args.packed_b);
  tile.out = matrix_of(*args.out);
  if (args.bias != nullptr) {
    tile.bias = args.bias->data;
    tile.bias_stride = args.bias->stride(0);
  }
  tile.a_dtype = product.a;
  tile.b_dtype = product.b;
  tile.out_dtype = product.out;
  tile.accumulate = product.epilogue.accumulate;
  return tile;
}

cpu::AsyncInputProduct async_input_product_of(const Product& product, const ProductArgs& args,
                                              std::chrono::nanoseconds timeout) {
  const Arrival& arrival = *args.arrival;
  const int chunks = static_cast<int>(product.arrival->count);
  cpu::AsyncInputProduct task{.whole = tile_problem_of(product, args),
                              .order = ChunkOrder(product.m, chunks, static_cast<int>(arrival.pivot)),
                              .signals = arrival.signals.data_as<const std::uint32_t>(),
                              .num_chunks = chunks,
                              .expected = arrival.expected,
                              .timeout = timeout};
  if (arrival.complete) {
    task.complete = arrival.complete->rows.data;
    task.complete_first = static_cast<int>(arrival.complete->first);
    task.complete_end = static_cast<int>(arrival.complete->first + arrival.complete->count);
  }
  if (arrival.senders) {
    task.group = arrival.senders->handle->kernel_handle();
    task.chunks_per_rank = arrival.senders->chunks_per_rank;
  }
  task.in_order = arrival.in_order;
  task.held = arrival.held;
  task.are_relayed = arrival.are_relayed;
  if (args.chunk_waits != nullptr) task.chunk_waits = *args.chunk_waits;
  return task;
}

/// All of a is there; the own chunk comes last.
cpu::AsyncInputProduct telling_product_of(const Product& product, const ProductArgs& args) {
  const Telling& telling = *args.telling;
  const symm::KernelHandle ranks = telling.handle->kernel_handle();
  return {.whole = tile_problem_of(product, args),
          .order = ChunkOrder(product.m, ranks.world_size, (ranks.rank + 1) % ranks.world_size),
          .num_chunks = ranks.world_size,
          .complete = args.a->data,
          .complete_first = 0,
          .complete_end = ranks.world_size,
          .telling = cpu::Telling{ranks, telling.word_bytes, telling.value}};
}

/// Every product but those that send, and those that are scaled while their left operand arrives.
class TileImplementation final : public Implementation {
 public:
  TileImplementation(const Isa& isa, const Config& config)
      : name_("cpu/tile_" + std::string(isa.name)),
        kernels_(*isa.kernels),
        only_pairs_(isa.kernels == &cpu::kTileAvx512Bf16),
        is_forced_(config.isa == isa.name),
        usable_(usable(isa, config)) {}

  [[nodiscard]] std::string_view name() const override { return name_; }

  [[nodiscard]] bool accepts(const Product& product, std::string* why_not) const override {
    if (product.owners) return refuse_owners(why_not);
    if (!has_wide_weight(product, why_not)) return false;
    if (!has_heuristic(product, why_not)) return false;
    if (product.arrival && product.arrival->in_pieces > 0)
      return refuse(why_not, "products on CPUs send nothing");
    if (product.arrival && !product.is_plain())
      return refuse(why_not, "has no scaled products whose left operand still arrives");
    if (product.arrival && !is_tile(product))
      return refuse(why_not, "adds nothing but a bias to products whose left operand still arrives");
    if (product.tells && !is_tile(product))
      return refuse(why_not, "tells of the rows of plain products only");
    if (!usable_.ok) return refuse(why_not, usable_.why_not);
    return !only_pairs_ || takes_pairs(product, why_not);
  }

  [[nodiscard]] Result<void> run(const Product& product, const ProductArgs& args,
                                 Stream& stream) const override {
    if (product.arrival)
      return launch(async_input_product_of(product, args, stream.device().config().op_timeout), stream);
    if (product.tells) return launch(telling_product_of(product, args), stream);
    if (is_tile(product)) return launch(tile_problem_of(product, args), stream);
    cpu::ScaledProduct scaled = cpu::scaled_product_of(product, args);
    if (args.packed_b != nullptr) scaled.packed_b = panels_of(*args.packed_b);
    return launch(scaled, stream);
  }

  [[nodiscard]] Result<std::shared_ptr<const PackedOperand>> pack(const TensorView& b) const override {
    return cpu::PackedPanels::make(b, kernels_, name_);
  }

 private:
  [[nodiscard]] bool takes_pairs(const Product& product, std::string* why_not) const {
    if (product.a != DType::kBF16 || product.b != DType::kBF16)
      return refuse(why_not, "multiplies bf16 by bf16 only");
    if (is_forced_) return true;
    const tandem::cpu::CorePeaks& peaks = tandem::cpu::core_peaks();
    if (peaks.dot_bf16 > peaks.fma_f32) return true;
    if (why_not == nullptr) return false;
    return refuse(why_not, fmt::format("VDPBF16PS reaches {:.0f} GFLOP/s on this machine, FMA {:.0f}",
                                       peaks.dot_bf16, peaks.fma_f32));
  }
  /// What the kernel does by itself.
  static bool is_tile(const Product& product) { return product.is_plain() && !product.epilogue.addend; }
  template <class Task>
  [[nodiscard]] Result<void> launch(const Task& task, Stream& stream) const {
    return tandem::cpu::launch(
        stream, tandem::cpu::Task([kernels = &kernels_, task] { return cpu::run(task, *kernels); }));
  }

  std::string name_;
  const cpu::TileKernels& kernels_;
  bool only_pairs_;
  bool is_forced_;
  Support usable_;
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const Config& config)
      : avx512_bf16_(kAvx512Bf16, config),
        avx512_(kAvx512, config),
        avx2_(kAvx2, config),
        scalar_(kScalar, config),
        four_bit_avx512_("cpu/4bit_avx512_vnni", cpu::kFourBitAvx512,
                         cpu::with_vnni(usable(kAvx512, config))),
        four_bit_avx2_("cpu/4bit_avx2", cpu::kFourBitAvx2, usable(kAvx2, config)),
        four_bit_scalar_("cpu/4bit_scalar", cpu::kFourBitScalar, usable(kScalar, config)) {}
  [[nodiscard]] std::span<const Implementation* const> implementations() const override { return list_; }

 private:
  TileImplementation avx512_bf16_;
  TileImplementation avx512_;
  TileImplementation avx2_;
  TileImplementation scalar_;
  cpu::FourBitImplementation four_bit_avx512_;
  cpu::FourBitImplementation four_bit_avx2_;
  cpu::FourBitImplementation four_bit_scalar_;
  std::array<const Implementation*, 7> list_ = {
      &avx512_bf16_, &avx512_, &avx2_, &scalar_, &four_bit_avx512_, &four_bit_avx2_, &four_bit_scalar_};
};

class CpuRowQuantizer final : public RowQuantizer {
 public:
  [[nodiscard]] Result<void> run(const RowQuantization& rows, Stream& stream) const override {
    return tandem::cpu::launch(stream, tandem::cpu::Task([rows] { return cpu::run(rows); }));
  }
};

}  // namespace

void attach_cpu(Device& device) {
  device.attach<Backend>(std::make_shared<CpuBackend>(device.config()));
  device.attach<RowQuantizer>(std::make_shared<CpuRowQuantizer>());
}

}  // namespace tandem::gemm
