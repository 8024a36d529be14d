#include "cost/transfers.hpp"

#include <algorithm>
#include <cmath>

namespace tandem::cost {
namespace {

double us_by(const CollectiveTimes& rates, std::int64_t part_bytes, int peers, const GpuRates& gpu) {
  const double link_us = peers * static_cast<double>(part_bytes) / gpu.link_bytes_per_us;
  return rates.start_us + (rates.slowness + rates.slowness_of_a_peer / peers) * link_us;
}

}  // namespace

double collective_us(Collective collective, std::int64_t part_bytes, int world, std::int64_t mailbox_bytes,
                     const GpuRates& gpu) {
  const int peers = world - 1;
  if (peers < 1) return 0;
  if (collective == Collective::kAllReduce) {
    const double in_parts_us =
        collective_us(Collective::kReduceScatter, part_bytes, world, mailbox_bytes, gpu) +
        collective_us(Collective::kAllGather, part_bytes, world, mailbox_bytes, gpu);
    const std::int64_t whole_bytes = world * part_bytes;
    return whole_bytes > mailbox_bytes
               ? in_parts_us
               : std::min(in_parts_us, us_by(gpu.by_mailboxes, whole_bytes, peers, gpu));
  }
  const double us = us_by(gpu.by_mailboxes, std::min(part_bytes, mailbox_bytes), peers, gpu);
  if (part_bytes <= mailbox_bytes) return us;
  // No less than what mailboxes hold.
  const CollectiveTimes& rates = collective == Collective::kAllGather ? gpu.gather : gpu.sum;
  return std::max(us, us_by(rates, part_bytes, peers, gpu));
}

double low_contention_us(double received_bytes, const GpuRates& gpu) {
  constexpr double kBesideUs = 300;  // what it takes longer than alone
  return gpu.pull_start_us + kBesideUs + received_bytes / gpu.link_bytes_per_us;
}

bool copies_keep_pace(std::int64_t n, const GpuRates& gpu) {
  constexpr double kSpare = 1.25;
  // Of two bytes, whatever they hold.
  const double multiplied_us = 2.0 * static_cast<double>(n) / gpu.half_flops_per_us;
  const double copied_us = 2.0 / gpu.link_bytes_per_us;
  return multiplied_us > kSpare * copied_us;
}

bool pieces_keep_pace(const SentShards& shards, const GpuRates& gpu) {
  // Of a shard: less of the next one in the first wave makes no difference, nor does less before its wave.
  constexpr double kMuch = 0.2;
  constexpr double kLittle = 0.1;
  // Of the last wave: where more of it is empty narrower tiles are faster, whose first wave is the own shard.
  constexpr double kEmpty = 0.1;
  const double wave_size = gpu.multiprocessors * 128.0 * 224;  // of the tiles that send best
  const auto shard_size = static_cast<double>(shards.rows) * static_cast<double>(shards.n);
  const auto shard_bytes = static_cast<double>(shards.rows * shards.k * shards.element_bytes);
  if (shard_size == 0 || shard_bytes == 0) return false;
  const double of_wave = std::min(wave_size / shard_size, static_cast<double>(shards.world));  // shards
  const double half_k = static_cast<double>(shards.k * shards.element_bytes) / 2;
  const double wave_us = 2.0 * of_wave * shard_size * half_k / gpu.half_flops_per_us;
  const int at_once = std::max(static_cast<int>(std::round(of_wave)) - 1, 1);  // one of them is the own
  if (of_wave < 1 + kMuch || at_once * shard_bytes > gpu.first_wave_bytes_per_us * wave_us) return false;
  if (std::round(of_wave) >= shards.world) return true;
  const double waves = shards.world / of_wave;
  if (std::ceil(waves) > (1 + kEmpty) * waves) return false;
  // The next ones begin to come when those before have been sent.
  for (int shard = 1 + at_once; shard < shards.world; ++shard) {
    const int sent = (shard - 1) / at_once * at_once;
    const double begin_us = wave_us * std::floor(shard / of_wave + kLittle);
    if (sent * shard_bytes > gpu.later_wave_bytes_per_us * begin_us) return false;
  }
  return true;
}

}  // namespace tandem::cost
