#include "job_results.hpp"

#include <fmt/format.h>

#include <tandem/base/convert.hpp>

#include "failure.hpp"
#include "rank_job.hpp"

namespace tandem::cli {
namespace {

constexpr const char* kMemoryKey = "results";

std::string key_of_part(int i, int rank) {
  return fmt::format("result {}/part of rank {}", i, rank);
}

/// The whole tensors, one after the other from `data` on; each starts on a cache line.
std::vector<TensorView> views_of(const JobResults& results, void* data, std::int64_t& num_bytes) {
  constexpr std::int64_t kAlignment = 64;
  std::vector<TensorView> views;
  num_bytes = 0;
  for (const auto& [sizes, dtype] : results.tensors) {
    auto* begin = data == nullptr ? nullptr : static_cast<std::byte*>(data) + num_bytes;
    views.push_back(TensorView::contiguous(begin, sizes, dtype));
    num_bytes += (views.back().size_bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  return views;
}

std::vector<TensorView> views_of(const JobResults& results, void* data) {
  std::int64_t num_bytes = 0;
  return views_of(results, data, num_bytes);
}

std::int64_t bytes_of(const JobResults& results) {
  std::int64_t num_bytes = 0;
  static_cast<void>(views_of(results, nullptr, num_bytes));
  return num_bytes;
}

/// Calls `use(i, part)` with what `rank` hands in of each whole tensor.
template <class Use>
void for_each_part(const JobResults& results, const std::vector<TensorView>& wholes, int rank, Use use) {
  for (int i = 0; i < static_cast<int>(wholes.size()); ++i) {
    const auto [dim, shard] = results.part_of(i, rank);
    const TensorView part = wholes[static_cast<std::size_t>(i)].narrow(dim, shard.offset, shard.size);
    if (part.numel() > 0) use(i, part);
  }
}

}  // namespace

GatheredResults::GatheredResults(JobResults results)
    : results_(std::move(results)),
      memory_(bytes_of(results_)),
      tensors_(views_of(results_, memory_.data())) {}

void GatheredResults::publish(Store& store) const {
  if (store.carries_files()) memory_.publish(store, kMemoryKey);
}

void GatheredResults::collect(Store& store) const {
  if (store.carries_files()) return;
  for (int rank = 0; rank < results_.ranks; ++rank) {
    for_each_part(results_, tensors_, rank, [&](int i, const TensorView& to) {
      Store::Bytes sent = get_large(store, key_of_part(i, rank));
      take(convert(TensorView::contiguous(sent.data(), to.sizes, to.dtype), to));
    });
  }
}

void hand_in(const std::vector<TensorView>& parts, const JobResults& results, const RankContext& context) {
  Store& store = *context.store;
  const auto part = [&](int i) { return parts[static_cast<std::size_t>(i)]; };
  if (store.carries_files()) {
    const SharedBytes memory = SharedBytes::open(store, kMemoryKey);
    return for_each_part(results, views_of(results, memory.data()), context.rank,
                         [&](int i, const TensorView& to) { take(convert(part(i), to)); });
  }
  for_each_part(results, views_of(results, nullptr), context.rank, [&](int i, const TensorView& to) {
    const Tensor sent = Tensor::host(to.sizes, to.dtype);
    take(convert(part(i), sent.view()));
    set_large(store, key_of_part(i, context.rank),
              {sent.view().data_as<const std::byte>(), static_cast<std::size_t>(sent.view().size_bytes())});
  });
}

}  // namespace tandem::cli
