#include "cost/schedules.hpp"

#include <algorithm>
#include <vector>

#include "cost/products.hpp"

namespace tandem::cost {
namespace {

double to_us(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// Copies are work for the cores that multiply too; streams are threads.
Prediction predict_on_cores(const Workload& work, const CoreSpeeds& core) {
  // What one rank has of a processor: at most one core a stream, less where ranks share the cores.
  const double cores = static_cast<double>(work.cores) / work.world;
  const double one_stream = std::min(1.0, cores);
  const double two_streams = std::min(2.0, cores);
  const double flops_us = work.chunk_flops / core.flops_per_us;
  const double product_us =
      flops_us + work.rounds * work.chunk_b_elements / core.packed_per_us;  // of a chunk
  const auto chunk_bytes = static_cast<double>(work.chunk_bytes);
  const double copy_us = chunk_bytes / core.copy_bytes_per_us;
  const double sum_us = work.sums ? work.world * chunk_bytes / core.sum_bytes_per_us : 0;
  const double link_us = to_us(work.link);
  const int peers = work.world - 1;

  const double serial_us =
      work.world * flops_us + work.b_elements / core.packed_per_us + work.serial_copies * copy_us + sum_us;
  // What is given to all: all rounds but the last beside products, and that one on both streams.
  const double gives_us = work.gives_all ? peers * (link_us + copy_us / work.rounds / one_stream) : 0;
  const double last_gives_us = peers > 0 ? gives_us * (work.world / 2) / peers : 0;
  const double copies_us = (work.gives_all ? 2 : 1) * peers * copy_us;
  const double work_us = work.world * product_us + copies_us + sum_us;
  // The side stream takes the odd steps; a step on a stream of its own is a link's wait, a copy and a
  // product.
  const int side_steps = work.world / 2;
  const int own_steps = peers - side_steps;
  const double step_us = work.rounds * link_us + (copy_us + product_us) / one_stream;
  const double lanes_us = std::max(side_steps * step_us + (work.rounds - 1) * gives_us,
                                   own_steps * step_us + product_us / one_stream);
  const double longest_lane_us = lanes_us + sum_us / one_stream + last_gives_us;
  // The side stream pushes, the caller's multiplies; the last chunk that comes is multiplied behind its push.
  // Ranks that await each other's shards meet once.
  const double pushes_us = peers * (link_us + copy_us / one_stream);
  const double products_us = work.world * product_us / one_stream;
  const double last_us = product_us / one_stream;
  const double longest_native_us = std::max(products_us, pushes_us + last_us);
  const double cut_us = work.rounds * work.world * kCore.cut_us;
  const double barrier_us = kCore.barrier_us * std::max(1.0, 1 / cores);  // the ranks of a core go one by one
  // One product that packs b once: of what peers hold, behind the link's time for each part of it, which is
  // copied once, into where they read it; or of what peers are told of, which come to add it.
  const double once_us = (flops_us + work.b_elements / core.packed_per_us / work.world) / one_stream;
  const double held_us =
      copy_us / one_stream +
      std::max(work.world * once_us, peers * link_us + once_us / std::max(work.held_parts, 1));
  const double told_us =
      std::max(work.world * once_us, once_us / work.rounds + peers * link_us) + sum_us / one_stream +
      (work.gives_all ? (peers * link_us / work.rounds) + peers * copy_us / one_stream : 0);
  const int links = (work.gives_all ? 2 : 1) * peers;
  Prediction us = {.serial_us = links * link_us + serial_us / one_stream + work.serial_barriers * barrier_us,
                   .pipelined_us = std::max(longest_lane_us, work_us / two_streams) + cut_us +
                                   work.pipelined_barriers * barrier_us,
                   .native_us = std::max(longest_native_us, work_us / two_streams) + cut_us + barrier_us};
  if (work.held_parts > 0) us.native_us = held_us + barrier_us;
  if (work.tells) us.native_us = told_us + barrier_us;
  if (work.pipelined_tells) us.pipelined_us = us.native_us;
  return us;
}

// Copy engines work beside the products, which share one processor whatever the stream.
Prediction predict_on_gpu(const Workload& work, const GpuRates& gpu) {
  const double chunk_us =
      work.chunk_product_us.value_or(product_us(work.chunk_flops, work.element_bytes, gpu));
  const double whole_us = work.product_us.value_or(work.world * chunk_us);
  const int peers = work.world - 1;
  const double links_us = peers * to_us(work.link);
  const double bytes_us = peers * static_cast<double>(work.chunk_bytes) / gpu.link_bytes_per_us;
  const double gets_us = links_us + bytes_us;
  const int ways = work.gives_all ? 2 : 1;
  const double collective_us = ways * links_us + work.collective_us.value_or(ways * bytes_us);
  const double meetings_us = work.pipelined_barriers * gpu.barrier_us;
  const double cut_us = work.rounds * work.world * gpu.cut_us + meetings_us;
  // The last chunk is multiplied behind its copy; what is lost by cutting is lost while nothing is waited
  // for.
  const double by_barriers_us =
      std::max(work.world * chunk_us + cut_us, links_us + gpu.pull_slowness * bytes_us + chunk_us +
                                                   std::max(gpu.pull_start_us, meetings_us)) +
      (work.gives_all ? links_us + gpu.pull_slowness * bytes_us / work.rounds : 0);
  // The model of the native product knows the links as they are, not a simulated one.
  double native_us = work.native_us.value_or(whole_us);
  if (!work.native_us || work.link.count() > 0) native_us = std::max(native_us, gets_us + chunk_us);
  return {.serial_us = whole_us + collective_us,
          .pipelined_us = work.pushed_us.value_or(by_barriers_us),
          .native_us = native_us};
}

}  // namespace

std::optional<Prediction> predict(const Workload& work, const GpuRates& gpu) {
  if (work.kind == DeviceKind::kCuda) return predict_on_gpu(work, gpu);
  if (!work.core) return std::nullopt;
  return predict_on_cores(work, *work.core);
}

// All ranks do the same at the same time: a chunk comes from the last peer when this rank's last push of that
// chunk is done. The other peers' have come before. Where sums end, partials come beside own products; else
// these wait for them.
double pushed_scatter_us(const PushedScatter& scatter, const GpuRates& gpu) {
  const auto multiply_us = [&](std::int64_t rows) {
    const double flops =
        2.0 * static_cast<double>(rows) * static_cast<double>(scatter.n) * static_cast<double>(scatter.k);
    const double us = scatter.element_bytes <= 2
                          ? vendor_us(rows, scatter.n, scatter.k, scatter.element_bytes, gpu)
                          : product_us(flops, scatter.element_bytes, gpu);
    return us + gpu.put_cut_us;
  };
  const std::int64_t chunk_rows = (scatter.rows + scatter.chunks - 1) / scatter.chunks;
  const double part_us = multiply_us(scatter.rows);
  const double chunk_us = multiply_us(chunk_rows);
  const auto chunk_bytes = static_cast<double>(chunk_rows * scatter.n * scatter.partial_bytes);
  const double push_us = gpu.put_us + to_us(scatter.link) + chunk_bytes / gpu.link_bytes_per_us;
  const double sum_of_peers_us = scatter.world > 2 && !scatter.ends_by_sums ? gpu.sum.start_us : 0;
  double products_us = 0;             // when the last product so far ends
  double pushes_us = gpu.barrier_us;  // and the last push; all come behind the barrier at the start
  const auto push = [&](double multiplied_us, int chunks) {
    products_us += multiplied_us;
    pushes_us = std::max(pushes_us, products_us) + chunks * push_us;
  };
  for (int chunk = 0; scatter.world > 2 && chunk < scatter.chunks; ++chunk) push(chunk_us, 1);
  for (int step = 2; step + 1 < scatter.world; ++step) push(part_us, scatter.chunks);
  std::vector<double> arrived_us;
  for (int chunk = 0; chunk < scatter.chunks; ++chunk) {
    push(chunk_us, 1);
    arrived_us.push_back(pushes_us + sum_of_peers_us);
  }
  const double sum_us = gpu.vendor.launch_us + (scatter.world + 1) * chunk_bytes / gpu.memory_bytes_per_us;
  // Where sums end, all own products come before them, or, where sums are given, one more than sums.
  const int num_early = !scatter.ends_by_sums ? 0 : scatter.gives_all ? 1 : scatter.chunks;
  products_us += num_early * chunk_us;
  if (num_early == scatter.chunks) products_us = std::max(products_us, arrived_us.back());
  // Sums of the other ranks come while the own ones are pushed, and are copied behind those of the next
  // chunk.
  const int peers = scatter.world - 1;
  const double copies_us = gpu.put_us + 2 * peers * chunk_bytes / gpu.memory_bytes_per_us;
  for (int chunk = 0; chunk < scatter.chunks; ++chunk) {
    products_us = std::max(products_us, arrived_us[static_cast<std::size_t>(chunk)]);
    if (chunk + num_early < scatter.chunks) products_us += chunk_us;
    if (scatter.ends_by_sums) products_us += sum_us;
    if (scatter.gives_all) pushes_us = std::max(pushes_us, products_us) + peers * push_us + copies_us;
  }
  return scatter.gives_all ? pushes_us : products_us;
}

double overlap_saves_us(double received_bytes, double product_us, int world, const GpuRates& gpu) {
  const double moving_us = received_bytes / gpu.link_bytes_per_us;
  return std::min(moving_us, product_us) * (world - 1) / world - gpu.cut_us * world;
}

}  // namespace tandem::cost
