#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <tandem/tandem.hpp>
#include <utility>
#include <vector>

#include "coll/group_lanes.hpp"
#include "fused/call/group_memory.hpp"
#include "fused/gather/plan.hpp"

namespace tandem::testing {

/// One CPU rank that runs native gathers, each with another a, and keeps every result. Small whole numbers:
/// all sums are exact.
class NativeRank {
 public:
  struct Shape {
    std::int64_t rows = 2;  ///< of a shard
    std::int64_t k = 3;
    std::int64_t columns = 2;  ///< 0: this rank multiplies nothing
  };

  NativeRank(Group& group, Device& device, Stream& stream, std::uint32_t longest = symm::Inbox::kLongest)
      : group_(group),
        device_(device),
        stream_(stream),
        inbox_(fused::inbox_of(group, device.id(), longest)) {}
  /// What is queued uses the calls.
  ~NativeRank() { static_cast<void>(stream_.synchronize()); }
  NativeRank(const NativeRank&) = delete;
  NativeRank& operator=(const NativeRank&) = delete;

  /// By the op: the ranks agree on it.
  Result<void> run(const Shape& shape, Algorithm algorithm) {
    Call& call = add(shape);
    call.args.algorithm = algorithm;
    if (auto copied = bring_a(call); !copied) return copied;
    const auto report = fused_all_gather_matmul(call.args, group_, stream_);
    if (!report) return tl::unexpected(report.error());
    if (report->algorithm != algorithm) return fail(ErrorCode::kInternal, "another algorithm ran");
    return {};
  }

  /// The program alone, without an agreement before it: nothing but the words keeps the ranks in step.
  Result<void> run_schedule(const Shape& shape) {
    Call& call = add(shape);
    if (auto copied = bring_a(call); !copied) return copied;
    const auto checked = fused::check(call.args, group_, stream_);
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

  /// What peers have read by now is overwritten: the slot of the op before, of which the words of the last op
  /// have said on every rank that it is over. To be called behind each op.
  Result<void> poison_slot(const Shape& shape) {
    const symm::InboxSlot& slot = inbox_.last();
    const InUse before = std::exchange(
        in_use_, {slot.handle, slot.epoch, slot.data_bytes / 4, group_.size() * shape.rows * shape.k});
    if (before.handle != slot.handle || before.epoch + 1 != slot.epoch) return {};
    const auto words =
        slot.handle->get_buffer(group_.rank(), {before.num_words}, DType::kU32, before.first_word);
    if (!words) return tl::unexpected(words.error());
    return stream_.memset32(*words, 0, 0xffffffff, words->numel());
  }

  /// Both streams are held for a moment now and then.
  Result<void> hold_now_and_then(std::mt19937& random) {
    if (random() % 4 == 0) {
      if (auto held = stream_.sleep(std::chrono::microseconds(random() % 300)); !held) return held;
    }
    if (random() % 4 != 0) return {};
    if (auto opened = coll::open_lanes(2, group_, device_); !opened) return opened;
    return coll::side_lane(1, group_, stream_).sleep(std::chrono::microseconds(random() % 300));
  }

  [[nodiscard]] const symm::Inbox& inbox() const { return inbox_; }

  /// The first wrong element of all calls; empty if there is none. Work must be done.
  [[nodiscard]] std::string wrong() const {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const Call& call = *calls_[i];
      for (std::size_t idx = 0; idx < call.out.size(); ++idx) {
        const auto row = static_cast<std::int64_t>(idx) / call.shape.columns;
        const auto column = static_cast<std::int64_t>(idx) % call.shape.columns;
        float need = 0;
        for (std::int64_t j = 0; j < call.shape.k; ++j)
          need += a_at(i, row, j) * b_at(j * call.shape.columns + column);
        if (call.out[idx] == need) continue;
        return "call " + std::to_string(i) + " on rank " + std::to_string(group_.rank()) + ": row " +
               std::to_string(row) + " is " + std::to_string(call.out[idx]) + ", need " +
               std::to_string(need);
      }
    }
    return "";
  }

 private:
  /// What the last op published.
  struct InUse {
    const symm::Handle* handle = nullptr;
    std::uint32_t epoch = 0;
    std::int64_t first_word = 0;
    std::int64_t num_words = 0;
  };
  struct Call {
    Shape shape;
    std::vector<float> source, b, out;
    std::vector<TensorView> bs, outs;
    AllGatherMatmulArgs args;
  };

  static float a_at(std::size_t call, std::int64_t row, std::int64_t column) {
    return static_cast<float>((static_cast<std::int64_t>(call) * 7 + row * 5 + column * 3) % 31);
  }
  static float b_at(std::int64_t idx) { return static_cast<float>(idx % 5 + 1); }

  Call& add(const Shape& shape) {
    calls_.push_back(std::make_unique<Call>());
    Call& call = *calls_.back();
    const std::size_t number = calls_.size() - 1;
    const std::int64_t first_row = group_.rank() * shape.rows;
    const std::int64_t all_rows = group_.size() * shape.rows;
    call.shape = shape;
    for (std::int64_t idx = 0; idx < shape.rows * shape.k; ++idx)
      call.source.push_back(a_at(number, first_row + idx / shape.k, idx % shape.k));
    for (std::int64_t idx = 0; idx < shape.k * shape.columns; ++idx) call.b.push_back(b_at(idx));
    call.out.assign(static_cast<std::size_t>(all_rows * shape.columns), -1);
    // One memory for every a: the next call's may come once this op is over.
    a_.resize(std::max<std::size_t>(kLargestShard, call.source.size()));
    call.bs = {TensorView::contiguous(call.b.data(), {shape.k, shape.columns}, DType::kF32)};
    call.outs = {TensorView::contiguous(call.out.data(), {all_rows, shape.columns}, DType::kF32)};
    call.args = {.a = TensorView::contiguous(a_.data(), {shape.rows, shape.k}, DType::kF32),
                 .b = call.bs,
                 .gather_size = all_rows,
                 .out = call.outs,
                 .algorithm = Algorithm::kNative};
    return call;
  }

  Result<void> bring_a(Call& call) {
    return stream_.copy(TensorView::contiguous(call.source.data(), call.args.a.sizes, DType::kF32),
                        call.args.a);
  }

  static constexpr std::size_t kLargestShard = 4096;
  Group& group_;
  Device& device_;
  Stream& stream_;
  symm::Inbox& inbox_;
  InUse in_use_;
  std::vector<float> a_ = std::vector<float>(kLargestShard);
  std::vector<std::unique_ptr<Call>> calls_;
};

}  // namespace tandem::testing
