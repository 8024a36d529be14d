// While a stream records work for replay, memory is neither made nor exchanged. No CPU stream captures, so
// the device's service says here that one does.
#include <gtest/gtest.h>

#include "support/symm_rank.hpp"
#include "symm/cpu/service.hpp"

namespace tandem::testing {
namespace {

class CapturingService final : public symm::cpu::CpuService {
 public:
  using CpuService::CpuService;
  [[nodiscard]] bool is_capturing() const override { return capturing; }
  bool capturing = false;
};

TEST(SymmCapture, MemoryIsRefusedAndTheGroupStaysUsable) {
  expect_ok(run_symm_ranks(2, {}, [](SymmRank& rank) -> Result<void> {
    const auto service = std::make_shared<CapturingService>(*rank.device);
    rank.device->attach<symm::Service>(service);
    const Tensor known = rank.empty({64});
    const Tensor unknown = rank.empty({64});
    const auto handle = rank.meet(known);
    const auto workspace = symm::workspace(rank.group, *rank.device, 1000).value();
    const std::int64_t more = workspace->buffer_size_bytes() + 1;

    service->capturing = true;
    constexpr auto kCode = ErrorCode::kUnsupported;
    expect_error(symm::empty({8}, DType::kU8, *rank.device), kCode,
                 "8 bytes while a stream of cpu:0 is capturing");
    expect_error(symm::rendezvous(unknown, rank.group), kCode, "capturing");
    expect_error(symm::workspace(rank.group, *rank.device, more), kCode,
                 "call symm::workspace with " + std::to_string(more) + " bytes before");
    // Look-ups go on.
    EXPECT_EQ(rank.meet(known), handle);
    EXPECT_EQ(symm::workspace(rank.group, *rank.device, 1000).value(), workspace);

    service->capturing = false;
    expect_ok(rank.group.status());
    const auto late = rank.meet(unknown);
    return late->barrier(*rank.stream).and_then([&] { return rank.finish(); });
  }));
}

}  // namespace
}  // namespace tandem::testing
