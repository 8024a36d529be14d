#include "scale_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tandem/base/convert.hpp>
#include <tandem/gemm/scaled_mm.hpp>

#include "failure.hpp"
#include "tensor_file.hpp"

namespace tandem::cli {
namespace {

using gemm::kScaleBlock;
using gemm::num_scale_blocks;
using harness::Scales;

/// f32, contiguous.
TensorView read(const std::string& file, const std::string& flag, std::vector<Tensor>& held) {
  const Tensor found = read_tensor_file(file, flag);
  if (!is_floating(found.dtype()))
    bad_input(fmt::format("{} {}: its type {} is no floating type", flag, file, to_string(found.dtype())));
  Tensor scales = Tensor::host(found.sizes(), DType::kF32);
  take(convert(found.view(), scales.view()));
  return held.emplace_back(std::move(scales)).view();
}

/// By a's scale, whose last size is 1 by rows. Where k is one block, scales by rows are the same.
Scales kind_of(const TensorView& a_scale) {
  if (a_scale.numel() == 1) return Scales::kTensor;
  return a_scale.sizes.back() == 1 ? Scales::kRow : Scales::kBlock;
}

[[noreturn]] void refuse(const std::string& flag, const std::string& file, const TensorView& scale,
                         const std::string& need) {
  bad_input(fmt::format("{} {} has sizes {}: need {}", flag, file, to_string(scale.sizes), need));
}

/// [kb, n], of blocks that are 128 columns wide.
TensorView widened(const TensorView& blocks, std::int64_t n, std::vector<Tensor>& held) {
  Tensor columns = Tensor::host({blocks.size(0), n}, DType::kF32);
  for (std::int64_t column = 0; column < n; ++column)
    take(convert(blocks.narrow(1, column / kScaleBlock, 1), columns.view().narrow(1, column, 1)));
  return held.emplace_back(std::move(columns)).view();
}

}  // namespace

void read_scales(const ScaleFiles& files, harness::Problem& problem, harness::WholeTensors& tensors,
                 std::vector<Tensor>& held) {
  if (files.a.empty() || files.b.size() != problem.n.size()) {
    bad_input(fmt::format("{} --a-scale and {} --b-scale for one --a and {} --b: pass one for each",
                          files.a.empty() ? 0 : 1, files.b.size(), problem.n.size()));
  }
  const TensorView a_scale = read(files.a, "--a-scale", held);
  if (!problem.is_scaled()) problem.scales = kind_of(a_scale);
  const Dims sizes = a_scale_sizes(problem);
  const Dims flat = {numel(problem.a) / std::max<std::int64_t>(problem.k(), 1), sizes.back()};
  const bool is_one = problem.scales == Scales::kTensor;
  if (is_one ? a_scale.numel() != 1 : a_scale.sizes != sizes && a_scale.sizes != flat) {
    refuse("--a-scale", files.a, a_scale,
           is_one ? "one element" : fmt::format("{} or {}", to_string(sizes), to_string(flat)));
  }
  tensors.a_scale = TensorView::contiguous(a_scale.data, sizes, DType::kF32);
  for (std::size_t i = 0; i < files.b.size(); ++i) {
    const std::int64_t n = problem.n[i];
    const TensorView scale = read(files.b[i], "--b-scale", held);
    const Dims need = b_scale_sizes(problem, static_cast<int>(i));
    const Dims squares = {need[0], num_scale_blocks(n)};
    if (scale.numel() == numel(need) && (is_one || scale.sizes == need || scale.sizes == Dims{n})) {
      tensors.b_scale.push_back(TensorView::contiguous(scale.data, need, DType::kF32));
    } else if (problem.scales == Scales::kBlock && scale.sizes == squares) {
      tensors.b_scale.push_back(widened(scale, n, held));
    } else {
      refuse("--b-scale", files.b[i], scale,
             is_one                             ? "one element, as --a-scale has"
             : problem.scales == Scales::kBlock ? fmt::format("{} or {}", to_string(need), to_string(squares))
                                                : fmt::format("{} or [{}]", to_string(need), n));
    }
  }
}

}  // namespace tandem::cli
