#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <tandem/base/tensor.hpp>

#include "cost/machine.hpp"

// Times of the three algorithms of a fused op, from what its products, copies and meetings take.

namespace tandem::cost {

/// What one core does while the ranks keep all of theirs busy, in a microsecond; measured, see
/// fused/core_speeds.hpp.
struct CoreSpeeds {
  double flops_per_us = 0;       ///< of products
  double packed_per_us = 0;      ///< elements of a right operand, packed before it is multiplied
  double copy_bytes_per_us = 0;  ///< from a peer or within a rank
  double sum_bytes_per_us = 0;   ///< of all partials that are summed
};

/// What the choice of an algorithm is made from. Every rank has to choose the same, so it holds only what the
/// ranks agree on or find alike: of a gather not the columns of its own b, of a scatter not its own k.
struct Workload {
  DeviceKind kind = DeviceKind::kCpu;
  int world = 1;
  int cores = 1;                     ///< that the ranks may run on together
  std::chrono::nanoseconds link{0};  ///< time of a copy from a peer that costs no processor
  std::int64_t chunk_bytes = 0;      ///< one rank's shard or partial
  double chunk_flops = 0;            ///< of one chunk's product
  std::int64_t element_bytes = 2;    ///< of the factors
  double b_elements = 0;             ///< of the right operand, which serial packs once
  double chunk_b_elements = 0;       ///< what the product of a chunk packs of it
  int serial_copies = 0;             ///< chunks that a rank copies in serial's collective
  bool sums = false;                 ///< as many chunks as there are ranks are added up
  int pipelined_barriers = 0;
  int serial_barriers = 0;
  /// Of `native`: products read what peers have where it lies, behind the link's time for each of so many
  /// parts of a chunk; 0: peers push chunks.
  int held_parts = 0;
  /// Of `native` scatters, and of `pipelined` ones: products are of one lane and pack b once, and partials
  /// are added where peers have made them.
  bool tells = false;
  bool pipelined_tells = false;
  int rounds = 1;          ///< of `pipelined`: every product, copy and link is cut in so many
  bool gives_all = false;  ///< each rank's sums go to all the others
  /// On CPUs; nullopt: not known, and nothing is predicted.
  std::optional<CoreSpeeds> core = {};
  // On a GPU, by the models of products there; nullopt: by their flops. Of all chunks at once, of one, and of
  // the product that consumes its input, with what it waits for.
  std::optional<double> product_us = {};
  std::optional<double> chunk_product_us = {};
  std::optional<double> native_us = {};
  std::optional<double> pushed_us = {};      ///< of `pipelined` by pushes: pushed_scatter_us()
  std::optional<double> collective_us = {};  ///< of serial, by the device's model; nullopt: by its bytes
};

/// Times that the model predicts for one op.
struct Prediction {
  double serial_us = 0;
  double pipelined_us = 0;
  double native_us = 0;
};
/// Nullopt where the device's speeds are not known. Equal workloads give equal predictions.
/// Source:  docs/design/schedules.md
[[nodiscard]] std::optional<Prediction> predict(const Workload& work, const GpuRates& gpu = kH200);

/// A scatter of rows whose ranks push partials to each other in chunks, while they multiply, and add what
/// comes in the products of their own rows, or in sums behind them.
struct PushedScatter {
  int world = 2;
  std::int64_t rows = 0;  ///< of the largest part
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t element_bytes = 2;  ///< of factors
  std::int64_t partial_bytes = 2;  ///< of an element of a partial
  int chunks = 1;                  ///< of a part; products are cut in them too, but not for middle peers
  bool ends_by_sums = false;       ///< behind all products, which wait for nothing then
  bool gives_all = false;          ///< sums of chunks are pushed to all, beside the products behind them
  std::chrono::nanoseconds link{0};
};
/// From the first product's start to the last one's end.
/// Source:  docs/design/schedules.md
[[nodiscard]] double pushed_scatter_us(const PushedScatter& scatter, const GpuRates& gpu = kH200);

/// What a GPU is expected to save by receiving so many bytes while it multiplies; negative: it costs. Cut in
/// `world` pieces, all but one piece of the shorter of the two hides behind the longer.
[[nodiscard]] double overlap_saves_us(double received_bytes, double product_us, int world,
                                      const GpuRates& gpu = kH200);

}  // namespace tandem::cost
