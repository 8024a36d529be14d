#include "device/cpu/cpu_device.hpp"

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "base/format.hpp"
#include "base/home_process.hpp"
#include "base/memory_pages.hpp"
#include "base/try.hpp"
#include "base/usable_cores.hpp"
#include "device/cpu/cpu_event.hpp"
#include "device/cpu/cpu_stamps.hpp"
#include "device/cpu/cpu_stream.hpp"
#include "device/cpu/processor.hpp"
#include "device/cpu/work_queue.hpp"

namespace tandem::cpu {
namespace {

class CpuDevice final : public Device {
 public:
  CpuDevice(int index, const Config& config) : Device({DeviceKind::kCpu, index}, config) {
    attach(frees_);
    attach(make_stamp_service());
  }
  /// Finishes the work of its streams first, as they do themselves.
  ~CpuDevice() override {
    for (const auto& queue : frees_->queues())
      static_cast<void>(queue->wait(queue->last_pushed(), Deadline::never()));
  }

  std::string description() const override {
    const int cores = usable_cores();
    return fmt::format("{}, {} {}, {}", processor_name(), cores, cores == 1 ? "core" : "cores",
                       config().isa.value_or(std::string(best_isa())));
  }
  Result<std::unique_ptr<Stream>> create_stream(int priority) override {
    TANDEM_TRY(home_.check("the device cpu:0"));
    return CpuStream::create(*this, priority, frees_);
  }
  Result<std::unique_ptr<Event>> create_event() override { return std::make_unique<CpuEvent>(); }
  /// No driver limits the queue; this bounds its memory.
  int max_queued_ops() const override { return 1024; }
  bool is_host_accessible() const override { return true; }
  bool can_reach(DeviceId id) const override { return id.kind == DeviceKind::kCpu; }

 private:
  Result<Buffer> do_allocate(std::int64_t num_bytes) override {
    TANDEM_TRY(home_.check("the device cpu:0"));
    frees_->free_unused();
    TANDEM_ASSIGN(void* const data, allocate_pages("allocate", num_bytes));
    try {
      return Buffer(data, num_bytes, std::shared_ptr<void>(data, [frees = frees_](void* freed) {
                      frees->free({freed, [](void* object, void*) { std::free(object); }});
                    }));
    } catch (const std::bad_alloc&) {  // of the owner; it has freed the data
      return failf(ErrorCode::kOutOfMemory, "allocate: {} bytes asked for on {}", num_bytes, to_string(id()));
    }
  }
  Result<void> do_zero(void* data, std::int64_t num_bytes) override {
    std::memset(data, 0, static_cast<std::size_t>(num_bytes));
    return {};
  }
  Result<void> do_copy_from_host(const void* from, const TensorView& to) override {
    std::memcpy(to.data, from, static_cast<std::size_t>(to.size_bytes()));
    return {};
  }
  Result<void> do_copy_to_host(const TensorView& from, void* to) override {
    std::memcpy(to, from.data, static_cast<std::size_t>(from.size_bytes()));
    return {};
  }

  const HomeProcess home_;
  const std::shared_ptr<CpuFrees> frees_ = std::make_shared<CpuFrees>();
};

}  // namespace

Result<std::unique_ptr<Device>> make_device(int index, const Config& config) {
  if (index != 0) {
    return failf(ErrorCode::kUnsupported, "cpu:{}: the cores of this host are one device, cpu:0", index);
  }
  return std::make_unique<CpuDevice>(index, config);
}

}  // namespace tandem::cpu
