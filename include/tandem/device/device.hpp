#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tandem/base/config.hpp>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/event.hpp>
#include <tandem/device/stream.hpp>
#include <typeindex>
#include <typeinfo>
#include <utility>

namespace tandem {

/// Memory of one device. When its last owner goes, the memory is freed after the work that the device's
/// streams have queued by then. Nobody waits for that. Move-only.
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, std::int64_t num_bytes, std::shared_ptr<void> owner)
      : data_(data), num_bytes_(num_bytes), owner_(std::move(owner)) {}
  Buffer(Buffer&&) noexcept = default;
  Buffer& operator=(Buffer&&) noexcept = default;

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::int64_t size_bytes() const { return num_bytes_; }
  [[nodiscard]] const std::shared_ptr<void>& owner() const { return owner_; }

 private:
  void* data_ = nullptr;
  std::int64_t num_bytes_ = 0;
  std::shared_ptr<void> owner_;
};

/// One processor with memory and streams: a GPU, or the cores of this host. It must outlive its streams. Its
/// memory may outlive it.
/// Higher modules attach the other parts of a backend as services: symmetric memory, products, collectives.
/// open_device() in tandem/backend/backend.hpp does so.
class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] DeviceId id() const { return id_; }
  [[nodiscard]] const Config& config() const { return config_; }
  /// A text for people: "Intel(R) Xeon(R) Processor @ 2.80GHz, 2 cores, avx512".
  [[nodiscard]] virtual std::string description() const = 0;

  /// Creates a stream. A lower priority number is more urgent.
  [[nodiscard]] virtual Result<std::unique_ptr<Stream>> create_stream(int priority = 0) = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<Event>> create_event() = 0;
  /// Creates an event for order alone: its elapsed_us() may be refused. On a GPU it costs less than an event
  /// that takes the time as well.
  [[nodiscard]] virtual Result<std::unique_ptr<Event>> create_mark() { return create_event(); }
  /// Allocates uninitialised memory, at least 64-byte aligned. Buffer says when it is freed.
  /// Errors:  kInvalidArgument if num_bytes is negative; kOutOfMemory with the bytes asked for.
  [[nodiscard]] Result<Buffer> allocate(std::int64_t num_bytes);
  /// Allocates a contiguous tensor of zeros.
  /// Errors:  as allocate(), and kInvalidArgument for sizes that no memory has.
  [[nodiscard]] Result<Tensor> allocate_tensor(const Dims& sizes, DType dtype);
  /// The number of collective ops that the host may enqueue before the first of them is done. The host waits
  /// at more. It is even and at least 2.
  [[nodiscard]] virtual int max_queued_ops() const { return 16; }
  /// Whether the host may read this device's memory by pointer.
  [[nodiscard]] virtual bool is_host_accessible() const = 0;
  /// Whether streams of this device can work on memory of that one.
  [[nodiscard]] virtual bool can_reach(DeviceId id) const { return id == id_; }
  /// Copies a whole tensor from host memory to memory that this device can reach, and waits for it.
  /// Memory:  the target may be the source itself; nothing is done then. No other overlap is allowed.
  /// Errors:  kInvalidArgument for a tensor that is not contiguous or out of reach, a read-only target, or
  ///          overlap.
  [[nodiscard]] Result<void> copy_from_host(const void* from, const TensorView& to);
  /// The same in the other direction.
  [[nodiscard]] Result<void> copy_to_host(const TensorView& from, void* to);

  /// The service of this type, or null if none was attached.
  template <class Service>
  [[nodiscard]] Service* service() const {
    const auto found = services_.find(typeid(Service));
    return found == services_.end() ? nullptr : static_cast<Service*>(found->second.get());
  }
  /// Attaches a service. It replaces an earlier one of the same type.
  template <class Service>
  void attach(std::shared_ptr<Service> service) {
    services_[typeid(Service)] = std::move(service);
  }

 protected:
  Device(DeviceId id, const Config& config) : id_(id), config_(config) {}
  // Arguments are checked; views are contiguous and not empty.
  virtual Result<Buffer> do_allocate(std::int64_t num_bytes) = 0;
  virtual Result<void> do_zero(void* data, std::int64_t num_bytes) = 0;
  virtual Result<void> do_copy_from_host(const void* from, const TensorView& to) = 0;
  virtual Result<void> do_copy_to_host(const TensorView& from, void* to) = 0;

 private:
  DeviceId id_;
  Config config_;
  std::map<std::type_index, std::shared_ptr<void>> services_;
};

}  // namespace tandem
