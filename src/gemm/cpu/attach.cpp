#include "gemm/cpu/attach.hpp"

#include <array>
#include <memory>
#include <string>
#include <tandem/cpu/launch.hpp>

#include "device/cpu/processor.hpp"
#include "gemm/backend.hpp"
#include "gemm/cpu/async_input_product.hpp"
#include "gemm/cpu/scaled_product.hpp"
#include "gemm/cpu/tile_problem.hpp"

namespace tandem::gemm {
namespace {

using cpu::TileProblem;

/// An instruction set by the name that Config::isa has for it; the better, the higher the level.
struct Isa {
  std::string_view name;
  int level;
  cpu::TileKernel kernel;
};
constexpr Isa kScalar = {"scalar", 0, cpu::run_tile_scalar};
constexpr Isa kAvx2 = {"avx2", 1, cpu::run_tile_avx2};
constexpr Isa kAvx512 = {"avx512", 2, cpu::run_tile_avx512};

int level_of(std::string_view name) {
  for (const Isa& isa : {kAvx512, kAvx2}) {
    if (isa.name == name) return isa.level;
  }
  return kScalar.level;
}

Support usable(const Isa& isa, const Config& config) {
  if (config.isa && *config.isa != isa.name) return Support::no("TANDEM_ISA=" + *config.isa + " excludes it");
  const std::string_view best = tandem::cpu::best_isa();
  if (isa.level <= level_of(best)) return Support::yes();
  return Support::no("this processor's best instruction set is " + std::string(best));
}

cpu::Matrix matrix_of(const TensorView& view) {
  return {.data = view.data, .row_stride = view.stride(0), .col_stride = view.stride(1)};
}

TileProblem tile_problem_of(const Problem& problem, const MmArgs& args) {
  TileProblem tile;
  tile.m = problem.m;
  tile.n = problem.n;
  tile.k = problem.k;
  tile.a = matrix_of(args.a);
  tile.b = matrix_of(args.b);
  tile.out = matrix_of(args.out);
  if (args.bias) {
    tile.bias = args.bias->data;
    tile.bias_stride = args.bias->stride(0);
  }
  tile.in_dtype = problem.in;
  tile.out_dtype = problem.out;
  tile.accumulate = problem.accumulate;
  return tile;
}

cpu::AsyncInputProduct async_input_product_of(const AsyncInputProblem& problem, const AsyncInputMmArgs& args,
                                              std::chrono::nanoseconds timeout) {
  const Problem rows{.m = problem.m, .n = problem.n, .k = problem.k, .in = problem.in, .out = problem.out};
  const int chunks = static_cast<int>(problem.chunks);
  cpu::AsyncInputProduct product{
      .whole = tile_problem_of(rows, {.a = args.a, .b = args.b, .out = args.out, .bias = {}}),
      .order = ChunkOrder(problem.m, chunks, static_cast<int>(args.a_chunk_pivot)),
      .signals = args.a_chunk_signals.data_as<const std::uint32_t>(),
      .num_signals = chunks,
      .expected = args.expected,
      .timeout = timeout};
  if (args.complete) {
    product.complete = args.complete->rows.data;
    product.complete_first = static_cast<int>(args.complete->first);
    product.complete_end = static_cast<int>(args.complete->first + args.complete->count);
  }
  if (args.senders) {
    product.group = args.senders->handle->kernel_handle();
    product.chunks_per_rank = args.senders->chunks_per_rank;
  }
  return product;
}

class TileImplementation final : public Implementation {
 public:
  TileImplementation(const Isa& isa, const Config& config)
      : name_("cpu/tile_" + std::string(isa.name)), kernel_(isa.kernel), usable_(usable(isa, config)) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] bool accepts(const Problem& problem, std::string* why_not) const override {
    return has_heuristic(problem, why_not) && is_usable(why_not);
  }
  [[nodiscard]] bool accepts_scaled(const ScaledProblem&, std::string* why_not) const override {
    return is_usable(why_not);
  }

  [[nodiscard]] Result<void> run(const Problem& problem, const MmArgs& args, Stream& stream) const override {
    return launch(tile_problem_of(problem, args), stream);
  }

  [[nodiscard]] Result<void> run_scaled(const ScaledProblem& problem, const ScaledMmArgs& args,
                                        Stream& stream) const override {
    return launch(cpu::scaled_product_of(problem, args), stream);
  }

  [[nodiscard]] bool accepts_async_input(const AsyncInputProblem& problem,
                                         std::string* why_not) const override {
    if (problem.patch_chunks > 0) {
      if (why_not != nullptr) *why_not = "products on CPUs send nothing";
      return false;
    }
    return is_usable(why_not);
  }
  [[nodiscard]] Result<void> run_async_input(const AsyncInputProblem& problem, const AsyncInputMmArgs& args,
                                             Stream& stream) const override {
    return launch(async_input_product_of(problem, args, stream.device().config().op_timeout), stream);
  }

 private:
  template <class Product>
  [[nodiscard]] Result<void> launch(const Product& product, Stream& stream) const {
    return tandem::cpu::launch(
        stream, tandem::cpu::Task([kernel = kernel_, product] { return cpu::run(product, kernel); }));
  }
  [[nodiscard]] bool is_usable(std::string* why_not) const {
    if (!usable_ && why_not != nullptr) *why_not = usable_.why_not;
    return usable_.ok;
  }

  std::string name_;
  cpu::TileKernel kernel_;
  Support usable_;
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const Config& config)
      : avx512_(kAvx512, config), avx2_(kAvx2, config), scalar_(kScalar, config) {}
  [[nodiscard]] std::span<const Implementation* const> implementations() const override { return list_; }

 private:
  TileImplementation avx512_;
  TileImplementation avx2_;
  TileImplementation scalar_;
  std::array<const Implementation*, 3> list_ = {&avx512_, &avx2_, &scalar_};
};

}  // namespace

void attach_cpu(Device& device) {
  device.attach<Backend>(std::make_shared<CpuBackend>(device.config()));
}

}  // namespace tandem::gemm
