#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/support.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <utility>

namespace tandem::gemm {

/// out [m, n] = a [m, k] * b [k, n] (+ bias [n]) (+ addend [m, n]), or out += a * b.
/// Types: a and b f32, bf16 or f16, equal; out the same or f32; bias and addend as out. f32 sums in ascending
///        k, one rounding. CPUs add products of bf16 in pairs, the odd k of each first, and take subnormals
///        for zeros. cuBLASLt may round the product to out's type before it adds an addend.
struct Problem {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType in = DType::kF32;
  DType out = DType::kF32;
  bool bias = false;
  bool accumulate = false;  ///< needs out = f32, and no addend
  bool addend = false;
  int heuristic = 0;  ///< of MmArgs
  friend bool operator==(const Problem&, const Problem&) = default;
};

/// "mm 512x1024x2048 bf16 -> f32".
[[nodiscard]] std::string to_string(const Problem& problem);

/// As many choices as a vendor library is asked for.
inline constexpr int kMostHeuristics = 8;

/// Any strides, for all of them; row-major or column-major operands are read in place, the rest packed.
/// Memory:  out may be the addend, element for element; it overlaps none of the others.
struct MmArgs {
  TensorView a;
  TensorView b;
  TensorView out;
  std::optional<TensorView> bias;
  bool accumulate = false;
  std::optional<TensorView> addend = {};
  /// Which of a vendor library's choices for the problem runs, its best guess first; for measurements. Only
  /// cuBLASLt has others than 0, and seldom more than kMostHeuristics.
  int heuristic = 0;
};

/// The problem of these arguments. Errors: kInvalidArgument with the values when they do not fit together.
[[nodiscard]] Result<Problem> problem_of(const MmArgs& args);

/// A problem with the implementation that will run it. Reusable, cheap to copy, valid as long as the device.
template <class ProblemType>
class PlanOf {
 public:
  [[nodiscard]] const ProblemType& problem() const { return problem_; }
  /// "cpu/tile_avx512".
  [[nodiscard]] std::string_view implementation() const { return implementation_; }
  /// Why none of those runs it that are tried first: "cpu/tile_avx512: TANDEM_ISA=avx2 excludes it; ...".
  [[nodiscard]] const std::string& why_no_others() const { return why_no_others_; }
  PlanOf(const ProblemType& problem, std::string_view implementation, std::string why_no_others,
         const void* leaf)
      : problem_(problem),
        implementation_(implementation),
        why_no_others_(std::move(why_no_others)),
        leaf_(leaf) {}
  [[nodiscard]] const void* leaf() const { return leaf_; }

 private:
  ProblemType problem_;
  std::string_view implementation_;
  std::string why_no_others_;
  const void* leaf_;
};
using Plan = PlanOf<Problem>;

/// Whether this device has an implementation, and if not, each one's reason.
[[nodiscard]] Support can_run(const Problem& problem, const Device& device);
[[nodiscard]] Result<Plan> plan(const Problem& problem, const Device& device);
/// Enqueues. Order: out is ready for later work on `stream`. No allocation on the repeat path. A graph uses
/// the scratch memory of the stream that recorded it, so it must not run beside products of that stream.
/// Where several devices share a GPU, a product that was not prepared waits on the host for earlier work on
/// `stream`.
/// Errors:  kInvalidArgument when the arguments are not of the plan's problem, or out overlaps.
[[nodiscard]] Result<void> run(const Plan& plan, const MmArgs& args, Stream& stream);

/// Makes now what the first run() of a product would make: picks the algorithm, loads its kernels, takes
/// scratch memory for `stream`. A run() like it then can be captured, and waits for nothing on the host.
/// Of `like` only types, sizes, strides and the alignment of the addresses count: no memory is read or
/// written, and pointers may be null, which counts as aligned to 128 bytes.
/// Order:   blocks the host, but not until earlier work on `stream` is done, unless ranks share a GPU. A
///          look-up if nothing is missing.
/// Errors:  those of run(); kOutOfMemory; kUnsupported while capturing, when scratch memory is missing.
[[nodiscard]] Result<void> prepare(const MmArgs& like, Stream& stream);

/// problem_of, plan and run in one call. Memory, order and errors: theirs.
[[nodiscard]] Result<void> mm(const MmArgs& args, Stream& stream);

}  // namespace tandem::gemm
