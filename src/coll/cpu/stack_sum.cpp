#include "coll/cpu/stack_sum.hpp"

#include <algorithm>
#include <tandem/base/numeric.hpp>

namespace tandem::coll::cpu {
namespace {

// Sums live here, so that the loops over them are contiguous whatever the output's strides.
constexpr std::int64_t kPieceElements = 512;

float widen(float value) {
  return value;
}
float widen(BF16 value) {
  return to_f32(value);
}
float widen(F16 value) {
  return to_f32(value);
}
float widen(F8E4M3 value) {
  return to_f32(value);
}
float widen(F8E5M2 value) {
  return to_f32(value);
}
void narrow(float value, float& to) {
  to = value;
}
void narrow(float value, BF16& to) {
  to = to_bf16(value);
}
void narrow(float value, F16& to) {
  to = to_f16(value);
}
void narrow(float value, F8E4M3& to) {
  to = to_f8e4m3(value);
}
void narrow(float value, F8E5M2& to) {
  to = to_f8e5m2(value);
}

/// Where layer `idx`, of so many elements, lies.
template <class T>
const T* layer_of(const StackSum& sum, std::int64_t idx, std::int64_t numel) {
  if (sum.stack != nullptr) return static_cast<const T*>(sum.stack) + idx * numel;
  return reinterpret_cast<const T*>(static_cast<const std::byte*>(sum.blocks[idx]) + sum.offset_bytes);
}

/// Layers 0, 1, ... in this order, the first by copy: a sum of one is that value, also -0. Of each `count`
/// elements from `begin` on.
template <class T>
void sum_layers(const StackSum& sum, std::int64_t numel, std::int64_t begin, std::int64_t count,
                float* sums) {
  const T* first = layer_of<T>(sum, 0, numel) + begin;
  for (std::int64_t i = 0; i < count; ++i) sums[i] = widen(first[i]);
  for (std::int64_t layer = 1; layer < sum.num_layers; ++layer) {
    const T* values = layer_of<T>(sum, layer, numel) + begin;
    for (std::int64_t i = 0; i < count; ++i) sums[i] += widen(values[i]);
  }
}

template <class T>
void add_bias(const T* bias, std::int64_t stride, std::int64_t count, float* sums) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] += widen(bias[i * stride]);
}

template <class T>
void write_out(const float* sums, std::int64_t count, T* out, std::int64_t stride) {
  if (stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) narrow(sums[i], out[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) narrow(sums[i], out[i * stride]);
  }
}

/// Calls `function` with a null pointer of the type's C++ form.
template <class Function>
void with_type(DType dtype, Function function) {
  switch (dtype) {
    case DType::kBF16:
      return function(static_cast<BF16*>(nullptr));
    case DType::kF16:
      return function(static_cast<F16*>(nullptr));
    case DType::kF8E4M3:
      return function(static_cast<F8E4M3*>(nullptr));
    case DType::kF8E5M2:
      return function(static_cast<F8E5M2*>(nullptr));
    default:
      return function(static_cast<float*>(nullptr));
  }
}

/// Row-major walk over all dims of `view` but the last, giving each row's offset in elements.
class RowWalk {
 public:
  explicit RowWalk(const TensorView& view) : view_(view) {}
  [[nodiscard]] std::int64_t offset() const { return offset_; }
  void next() {
    for (int d = view_.dim() - 2; d >= 0; --d) {
      offset_ += view_.stride(d);
      if (++index_[d] < view_.size(d)) return;
      offset_ -= view_.stride(d) * view_.size(d);
      index_[d] = 0;
    }
  }

 private:
  const TensorView& view_;
  std::int64_t offset_ = 0;
  std::int64_t index_[kMaxDims] = {};
};

/// Elements [at, at + count) of one row of out.
struct Piece {
  std::int64_t row_in_stack;  // elements before the row in a layer
  std::int64_t row_in_out;    // offset of the row in out
  std::int64_t at;
  std::int64_t count;
};

void add_up_piece(const StackSum& sum, const Piece& piece, std::int64_t layer_stride,
                  std::int64_t out_stride) {
  float sums[kPieceElements];
  with_type(sum.stack_dtype, [&]<class T>(T*) {
    sum_layers<T>(sum, layer_stride, piece.row_in_stack + piece.at, piece.count, sums);
  });
  if (sum.divisor != 1.0F) {
    for (std::int64_t i = 0; i < piece.count; ++i) sums[i] /= sum.divisor;
  }
  with_type(sum.out.dtype, [&]<class T>(T*) {
    if (sum.bias != nullptr) {
      add_bias(static_cast<const T*>(sum.bias) + piece.at * sum.bias_stride, sum.bias_stride, piece.count,
               sums);
    }
    write_out(sums, piece.count, sum.out.data_as<T>() + piece.row_in_out + piece.at * out_stride, out_stride);
  });
}

}  // namespace

void add_up(const StackSum& sum) {
  const std::int64_t numel = sum.out.numel();
  // Without a bias a contiguous output is one long row.
  const bool is_one_row = sum.out.dim() == 0 || (sum.bias == nullptr && sum.out.is_contiguous());
  const std::int64_t row_size = is_one_row ? numel : sum.out.sizes.back();
  const std::int64_t out_stride = is_one_row || row_size == 1 ? 1 : sum.out.strides.back();
  RowWalk row(sum.out);
  for (std::int64_t begin = 0; begin < numel; begin += row_size) {
    for (std::int64_t at = 0; at < row_size; at += kPieceElements) {
      add_up_piece(sum,
                   {.row_in_stack = begin,
                    .row_in_out = row.offset(),
                    .at = at,
                    .count = std::min(kPieceElements, row_size - at)},
                   numel, out_stride);
    }
    row.next();
  }
}

}  // namespace tandem::coll::cpu
