#include "symm/cpu/service.hpp"

#include <tandem/cpu/launch.hpp>

#include "base/try.hpp"
#include "symm/cpu/attach.hpp"
#include "symm/cpu/handle.hpp"
#include "symm/cpu/joining.hpp"

namespace tandem::symm {

void attach_cpu(Device& device) {
  std::shared_ptr<Service> service = std::make_shared<cpu::CpuService>(device);
  device.attach(std::move(service));
}

namespace cpu {

Result<std::shared_ptr<Block>> CpuService::allocate(std::int64_t num_bytes) {
  TANDEM_ASSIGN(std::shared_ptr<Segment> segment, Segment::create(num_bytes));
  return std::make_shared<CpuBlock>(device_, std::move(segment));
}

Result<std::unique_ptr<Joining>> CpuService::join(std::shared_ptr<Block> block, std::int64_t pad_bytes) {
  TANDEM_ASSIGN(std::shared_ptr<Segment> pad, Segment::create(pad_bytes));
  auto data = std::static_pointer_cast<CpuBlock>(std::move(block))->segment();
  return std::make_unique<CpuJoining>(std::move(data), std::move(pad));
}

std::shared_ptr<Handle> CpuService::make_handle(std::shared_ptr<Peers> peers, std::int64_t offset_bytes) {
  return std::make_shared<CpuHandle>(std::move(peers), offset_bytes);
}

Result<void> CpuService::enqueue_agreement(Stream& stream, Group& group, std::uint64_t sequence,
                                           const bootstrap::Fingerprint& fingerprint) {
  return tandem::cpu::launch(stream, tandem::cpu::Task([&group, sequence, fingerprint]() -> Result<void> {
                               group.faults().hit("agree", group.rank());
                               return bootstrap::control_of(group).agree(
                                   sequence, fingerprint, Deadline::after(group.config().op_timeout));
                             }));
}

}  // namespace cpu
}  // namespace tandem::symm
