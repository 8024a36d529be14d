#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tandem/tandem.hpp>
#include <vector>

#include "fused/call/group_memory.hpp"
#include "fused/call/run_op.hpp"
#include "fused/scatter/plan.hpp"

namespace tandem::testing {

/// One CPU rank that runs native scatters and all-reduces, each of another a, and keeps every result. Small
/// whole numbers: all sums are exact.
class ToldRank {
 public:
  struct Shape {
    std::int64_t rows = 5;  ///< of the product
    std::int64_t k = 3;
    std::int64_t columns = 2;
    bool to_all = false;
    int num_products = 1;  ///< one tells of its rows while it is made
  };

  ToldRank(Group& group, Device& device, Stream& stream) : group_(group), device_(device), stream_(stream) {}
  /// What is queued uses the calls.
  ~ToldRank() { static_cast<void>(stream_.synchronize()); }
  ToldRank(const ToldRank&) = delete;
  ToldRank& operator=(const ToldRank&) = delete;

  /// The program alone, without an agreement before it: nothing but the words keeps the ranks in step.
  Result<void> run_schedule(const Shape& shape) {
    Call& call = add(shape);
    if (shape.to_all) {
      return enqueue(fused::check(
          MatmulAllReduceArgs{.a = call.as, .b = call.bs, .out = call.view, .algorithm = Algorithm::kNative},
          group_, stream_));
    }
    return enqueue(fused::check(
        MatmulReduceScatterArgs{
            .a = call.as, .b = call.bs, .out = call.view, .algorithm = Algorithm::kNative},
        group_, stream_));
  }

  /// The first wrong element of all calls; empty if there is none. Work must be done.
  [[nodiscard]] std::string wrong() const {
    for (std::size_t number = 0; number < calls_.size(); ++number) {
      const Call& call = *calls_[number];
      for (std::size_t idx = 0; idx < call.out.size(); ++idx) {
        const auto at = static_cast<std::int64_t>(idx);
        const std::int64_t row = call.part.offset + at / call.shape.columns;
        float need = 0;
        for (int rank = 0; rank < group_.size(); ++rank) {
          for (std::int64_t i = 0; i < call.shape.k; ++i)
            need += call.shape.num_products * a_at(number, rank, row, i) * b_at(i, at % call.shape.columns);
        }
        if (call.out[idx] != need) {
          return "call " + std::to_string(number) + ", element " + std::to_string(idx) + " is " +
                 std::to_string(call.out[idx]) + ", need " + std::to_string(need);
        }
      }
    }
    return "";
  }

 private:
  struct Call {
    Shape shape;
    Shard part;
    std::vector<float> a, b, out;
    std::vector<TensorView> as, bs;
    TensorView view;
  };

  static float a_at(std::size_t call, int rank, std::int64_t row, std::int64_t i) {
    return static_cast<float>((static_cast<std::int64_t>(call) * 7 + rank * 11 + row * 5 + i * 3) % 31);
  }
  static float b_at(std::int64_t i, std::int64_t column) {
    return static_cast<float>((i * 3 + column) % 5 + 1);
  }

  Call& add(const Shape& shape) {
    calls_.push_back(std::make_unique<Call>());
    Call& call = *calls_.back();
    const std::size_t number = calls_.size() - 1;
    call.shape = shape;
    call.part = shape.to_all ? Shard{0, shape.rows} : shard_of(shape.rows, group_.size(), group_.rank());
    for (std::int64_t idx = 0; idx < shape.rows * shape.k; ++idx)
      call.a.push_back(a_at(number, group_.rank(), idx / shape.k, idx % shape.k));
    for (std::int64_t idx = 0; idx < shape.k * shape.columns; ++idx)
      call.b.push_back(b_at(idx / shape.columns, idx % shape.columns));
    call.out.assign(static_cast<std::size_t>(call.part.size * shape.columns), -1);
    const auto num_products = static_cast<std::size_t>(shape.num_products);
    call.as.assign(num_products, TensorView::contiguous(call.a.data(), {shape.rows, shape.k}, DType::kF32));
    call.bs.assign(num_products,
                   TensorView::contiguous(call.b.data(), {shape.k, shape.columns}, DType::kF32));
    call.view = TensorView::contiguous(call.out.data(), {call.part.size, shape.columns}, DType::kF32);
    return call;
  }

  Result<void> enqueue(const Result<fused::CheckedScatter>& checked) {
    if (!checked) return tl::unexpected(checked.error());
    const auto plan = fused::plan_of(*checked, group_, device_);
    if (!plan) return tl::unexpected(plan.error());
    const auto bind_tensors = [&](program::Bindings& bindings) {
      bind(checked->call, checked->problem, (*plan)->roots, bindings);
    };
    const fused::PlannedCall planned{.plan = *plan, .group = group_, .stream = stream_, .bind = bind_tensors};
    const auto ready = fused::make_ready(**plan, planned, stream_);
    if (!ready) return tl::unexpected(ready.error());
    return fused::enqueue(**plan, group_, stream_, nullptr);
  }

  Group& group_;
  Device& device_;
  Stream& stream_;
  std::vector<std::unique_ptr<Call>> calls_;
};

}  // namespace tandem::testing
