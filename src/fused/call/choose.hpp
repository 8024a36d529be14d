#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/support.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/fused/report.hpp>
#include <tandem/gemm/mm.hpp>
#include <tandem/tune/table.hpp>
#include <vector>

namespace tandem::fused {

/// What one core does while the ranks keep all of theirs busy, in a microsecond; measured, see
/// core_speeds.hpp.
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
  double b_elements = 0;             ///< of the right operand, which serial packs once
  double chunk_b_elements = 0;       ///< what the product of a chunk packs of it
  int serial_copies = 0;             ///< chunks that a rank copies in serial's collective
  bool sums = false;                 ///< as many chunks as there are ranks are added up
  int pipelined_barriers = 0;
  int serial_barriers = 0;
  Support native = Support::no("no kernel there consumes its input as it arrives");
  /// On CPUs; nullopt: not known, and nothing is predicted.
  std::optional<CoreSpeeds> core = {};
  // On a GPU, by the models of products there; nullopt: by their flops. Of all chunks at once, of one, and of
  // the product that consumes its input, with what it waits for.
  std::optional<double> product_us = {};
  std::optional<double> chunk_product_us = {};
  std::optional<double> native_us = {};
  std::optional<double> collective_us = {};  ///< of serial, by the device's model; nullopt: by its bytes
};

/// Asks the device's models what `whole` takes, and one of its chunks of so many rows.
void predict_products(const gemm::Problem& whole, std::int64_t chunk_rows, const Device& device,
                      Workload& work);

/// Times that the model predicts for one op.
struct Prediction {
  double serial_us = 0;
  double pipelined_us = 0;
  double native_us = 0;
};
/// Nullopt where the device's speeds are not known. Equal workloads give equal predictions.
[[nodiscard]] std::optional<Prediction> predict(const Workload& work);

struct Choice {
  Algorithm algorithm = Algorithm::kSerial;
  std::string reason;
  std::vector<Candidate> candidates;
};

/// The algorithm that runs when `asked` is asked for. kAuto takes what was measured to be fastest, or, where
/// nothing was (null), what is predicted to be; serial if no other is faster, in predictions for CPUs by more
/// than they can tell apart. Errors: kUnsupported for an algorithm that this device does not have; nothing is
/// put in its place.
[[nodiscard]] Result<Choice> choose(std::string_view who, Algorithm asked, const Workload& work,
                                    const tune::Row* measured, DeviceId device);

/// What was measured for `key` on the group's device, or null; by the group's table alone, so that ranks
/// whose devices describe themselves differently choose alike.
[[nodiscard]] const tune::Row* find_measured(const Group& group, const std::optional<tune::Key>& key);
/// A Key's link. It also keeps times of another kind of device apart, whatever device the group was told.
[[nodiscard]] std::string link_name(DeviceKind kind, std::chrono::nanoseconds delay);

}  // namespace tandem::fused
