#include "gemm/cpu/attach.hpp"

#include <array>
#include <memory>
#include <string>
#include <tandem/cpu/launch.hpp>

#include "base/try.hpp"
#include "device/cpu/processor.hpp"
#include "gemm/backend.hpp"
#include "gemm/cpu/async_input_product.hpp"
#include "gemm/cpu/four_bit_rows.hpp"
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

TileProblem tile_problem_of(const Product& product, const ProductArgs& args) {
  TileProblem tile;
  tile.m = product.m;
  tile.n = product.n;
  tile.k = product.k;
  tile.a = matrix_of(*args.a);
  tile.b = matrix_of(*args.b);
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
        usable_(usable(isa, config)) {}

  [[nodiscard]] std::string_view name() const override { return name_; }

  [[nodiscard]] bool accepts(const Product& product, std::string* why_not) const override {
    if (product.owners) return refuse_owners(why_not);
    if (!has_heuristic(product, why_not)) return false;
    if (product.arrival && product.arrival->in_pieces > 0)
      return refuse(why_not, "products on CPUs send nothing");
    if (product.arrival && !product.is_plain())
      return refuse(why_not, "has no scaled products whose left operand still arrives");
    if (product.arrival && !is_tile(product))
      return refuse(why_not, "adds nothing but a bias to products whose left operand still arrives");
    if (product.tells && !is_tile(product))
      return refuse(why_not, "tells of the rows of plain products only");
    if (only_pairs_ && (product.a != DType::kBF16 || product.b != DType::kBF16))
      return refuse(why_not, "multiplies bf16 by bf16 only");
    return usable_.ok || refuse(why_not, usable_.why_not);
  }

  [[nodiscard]] Result<void> run(const Product& product, const ProductArgs& args,
                                 Stream& stream) const override {
    if (product.arrival)
      return launch(async_input_product_of(product, args, stream.device().config().op_timeout), stream);
    if (product.tells) return launch(telling_product_of(product, args), stream);
    if (is_tile(product)) return launch(tile_problem_of(product, args), stream);
    return launch(cpu::scaled_product_of(product, args), stream);
  }

 private:
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
  Support usable_;
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const Config& config)
      : avx512_bf16_(kAvx512Bf16, config),
        avx512_(kAvx512, config),
        avx2_(kAvx2, config),
        scalar_(kScalar, config) {}
  [[nodiscard]] std::span<const Implementation* const> implementations() const override { return list_; }

 private:
  TileImplementation avx512_bf16_;
  TileImplementation avx512_;
  TileImplementation avx2_;
  TileImplementation scalar_;
  std::array<const Implementation*, 4> list_ = {&avx512_bf16_, &avx512_, &avx2_, &scalar_};
};

class CpuRowQuantizer final : public RowQuantizer {
 public:
  [[nodiscard]] Result<void> run(const RowQuantization& rows, Stream& stream) const override {
    return tandem::cpu::launch(stream, tandem::cpu::Task([rows] { return cpu::run(rows); }));
  }
};

/// By the best instruction set that the processor has and the configuration allows.
class CpuFourBitProducts final : public FourBitProducts {
 public:
  explicit CpuFourBitProducts(const Config& config) {
    const std::array choices = {Choice{"cpu/4bit_avx512_vnni", usable_vnni(config), &cpu::kFourBitAvx512},
                                Choice{"cpu/4bit_avx2", usable(kAvx2, config), &cpu::kFourBitAvx2},
                                Choice{"cpu/4bit_scalar", usable(kScalar, config), &cpu::kFourBitScalar}};
    for (const Choice& one : choices) {
      if (one.usable.ok && kernels_ == nullptr) {
        kernels_ = one.kernels;
        name_ = one.name;
      } else if (!one.usable.ok) {
        why_not_ +=
            std::string(why_not_.empty() ? "" : "; ") + std::string(one.name) + ": " + one.usable.why_not;
      }
    }
  }

  [[nodiscard]] Result<std::string_view> implementation() const override {
    TANDEM_TRY(check());
    return name_;
  }
  [[nodiscard]] Result<void> run(const FourBitProduct& product, Stream& stream) const override {
    TANDEM_TRY(check());
    return tandem::cpu::launch(
        stream, tandem::cpu::Task([product, kernels = kernels_] { return cpu::run(product, *kernels); }));
  }

 private:
  struct Choice {
    std::string_view name;
    Support usable;
    const cpu::FourBitKernels* kernels;
  };
  [[nodiscard]] Result<void> check() const {
    if (kernels_ != nullptr) return {};
    return fail(ErrorCode::kUnsupported, "matmul_4bit: " + why_not_);
  }
  static Support usable_vnni(const Config& config) {
    Support support = usable(kAvx512, config);
#if defined(__x86_64__)
    if (support.ok && !__builtin_cpu_supports("avx512vnni"))
      return Support::no("this processor has no AVX512_VNNI");
#endif
    return support;
  }

  const cpu::FourBitKernels* kernels_ = nullptr;
  std::string_view name_;
  std::string why_not_;
};

}  // namespace

void attach_cpu(Device& device) {
  device.attach<Backend>(std::make_shared<CpuBackend>(device.config()));
  device.attach<RowQuantizer>(std::make_shared<CpuRowQuantizer>());
  device.attach<FourBitProducts>(std::make_shared<CpuFourBitProducts>(device.config()));
}

}  // namespace tandem::gemm
