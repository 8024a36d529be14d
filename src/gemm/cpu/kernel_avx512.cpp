// Compiled with -mavx512f: nothing here may run before the processor was asked (attach.cpp).

#include "gemm/cpu/avx512_vectors.hpp"
#include "gemm/cpu/tile_loop.hpp"

namespace tandem::gemm::cpu {
namespace {

struct Avx512 : Avx512Vectors<Avx512> {
  using PairIsa = Avx512;
  static constexpr PanelForm kPairsForm = PanelForm::kTwoSteps;
};

}  // namespace

const TileKernels kTileAvx512 = {Avx512::kPairsForm, pack_by<Avx512>, multiply_by<Avx512>};

}  // namespace tandem::gemm::cpu
