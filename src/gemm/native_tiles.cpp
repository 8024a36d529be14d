#include "gemm/native_tiles.hpp"

#include <vector>

namespace tandem::gemm {
namespace {

/// What the files of cuda/sm90/instances/ say, one line each.
struct Family {
  const char* name;
  DType dtype;
  DType out;
  SumsKind sums;
  bool b_is_column_major;
};

template <class... Tiles>
void add(const Family& family, TileList<Tiles...>, std::vector<NativeKernel>& kernels) {
  (kernels.push_back({.name = name_of(family.name, Tiles::kTiling),
                      .dtype = family.dtype,
                      .out = family.out,
                      .sums = family.sums,
                      .b_is_column_major = family.b_is_column_major,
                      .tiling = Tiles::kTiling}),
   ...);
}

std::vector<NativeKernel> make_all() {
  std::vector<NativeKernel> all;
  add({"bf16 t", DType::kBF16, DType::kBF16, SumsKind::kPlain, true}, ColumnMajorTiles{}, all);
  add({"bf16 n", DType::kBF16, DType::kBF16, SumsKind::kPlain, false}, RowMajorTiles{}, all);
  add({"f16 t", DType::kF16, DType::kF16, SumsKind::kPlain, true}, ColumnMajorTiles{}, all);
  add({"f16 n", DType::kF16, DType::kF16, SumsKind::kPlain, false}, RowMajorTiles{}, all);
  add({"f8e4m3 t", DType::kF8E4M3, DType::kBF16, SumsKind::kScaled, true}, ScaledTiles{}, all);
  add({"f8e4m3 exact t", DType::kF8E4M3, DType::kBF16, SumsKind::kPromoted, true}, PromotedTiles{}, all);
  return all;
}

}  // namespace

std::span<const NativeKernel> native_kernels_of_hopper() {
  static const std::vector<NativeKernel> all = make_all();
  return all;
}

}  // namespace tandem::gemm
