#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <string_view>
#include <tandem/tandem.hpp>
#include <vector>

#include "harness/guarded_tensor.hpp"
#include "harness/reference.hpp"
#include "support/test_devices.hpp"

namespace tandem::test {

/// A guarded tensor that the host sees through copies only.
class Guarded : public harness::GuardedTensor {
 public:
  Guarded(Device& device, const Layout& layout, DType dtype)
      : GuardedTensor(device, layout, dtype, harness::HostImage::kAlways) {}
  Guarded(Device& device, const Dims& sizes, DType dtype)
      : GuardedTensor(device, sizes, dtype, harness::HostImage::kAlways) {}
  /// With these values.
  Guarded(Device& device, const Layout& layout, const TensorView& values)
      : Guarded(device, layout, values.dtype) {
    fill(values);
  }
  Guarded(Device& device, const Layout& layout, const Tensor& values)
      : Guarded(device, layout, values.view()) {}
};

/// Row-major strides times two in every dim: no operand is contiguous.
[[nodiscard]] Layout spread_out(const Dims& sizes);
[[nodiscard]] Layout dense(const Dims& sizes);
/// `sizes` with another last one.
[[nodiscard]] Dims with_last(Dims sizes, std::int64_t last);

/// Host memory with the pseudo-random values of `seed`, in [-1, 1): the same on every rank.
[[nodiscard]] Tensor generated(const Dims& sizes, DType dtype, int seed);
/// Scales between 0.5 and 1, times `magnitude`.
[[nodiscard]] Tensor generated_scale(const Dims& sizes, int seed, float magnitude = 1);

/// What rank threads have to complain about; empty is good.
class Complaints {
 public:
  void add(const std::string& text);
  /// What is wrong with a tensor, if anything: its elements, or bytes beside it. `name` is the tensor's.
  void add(const std::string& name, const harness::GuardedTensor& tensor, const harness::Wrong& wrong);
  [[nodiscard]] std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

/// Where the ranks of a job are, and what multiplies there; a test's parameter.
struct JobCase {
  testing::RankCase ranks;
  /// On a GPU: the vendor's products, whose bits may depend on the number of rows. Otherwise tandem's own
  /// kernel, with the same bits however the rows are split, as on a CPU.
  bool vendor_products = false;

  [[nodiscard]] bool is_on_cpu() const { return ranks.placement.kind == DeviceKind::kCpu; }
};
/// For the name of a test: "cpu_2", "cuda_2", "cuda_2_vendor".
[[nodiscard]] std::string to_string(const JobCase& job);
void PrintTo(const JobCase& job, std::ostream* out);
[[nodiscard]] std::string job_name(const ::testing::TestParamInfo<JobCase>& info);
/// Every size on every backend, with products of the same bits for any split of the rows.
[[nodiscard]] std::vector<JobCase> exact_cases(const std::vector<int>& sizes);
/// The same, and the vendor's products as well.
[[nodiscard]] std::vector<JobCase> all_cases(const std::vector<int>& sizes);

/// CPU ranks only.
[[nodiscard]] std::vector<JobCase> cpu_cases(const std::vector<int>& sizes);

/// One rank of a job of threads, with a device and a stream.
struct RankContextOfTest {
  Group& group;
  Device& device;
  Stream& stream;
};
/// Runs `body` on all ranks; an error of the ranks or of the set-up is a complaint.
void on_ranks(const JobCase& job, const Config& config, Complaints& complaints,
              const std::function<Result<void>(RankContextOfTest&)>& body);
/// A group of all ranks of `group`, which a test can end.
[[nodiscard]] Result<std::unique_ptr<Group>> subgroup_of_all(Group& group, std::string_view name);
/// Enqueues the product of one b and all ranks' rows of a.
[[nodiscard]] Result<void> gather_and_multiply(const Guarded& a, const Guarded& b, const Guarded& out,
                                               Algorithm algorithm, Group& group, Stream& stream);
/// `config` without the vendor's products.
[[nodiscard]] Config with_own_products(Config config);
/// Complains about words of this rank's pad of the group's workspace that are not zero: at rest they all are.
[[nodiscard]] Result<void> check_pads(RankContextOfTest& rank, Complaints& complaints);
/// Finite deadlines, no link delay.
[[nodiscard]] Config quick_config();

}  // namespace tandem::test
