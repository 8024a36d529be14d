#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tandem/device/device.hpp>
#include <tandem/symm/handle.hpp>
#include <utility>
#include <vector>

#include "coll/backend.hpp"
#include "gemm/backend.hpp"

namespace tandem::test {

// A device, its streams, products and sums and a handle that do nothing and write down what they are told, in
// the notation of the enqueue traces: what a program really enqueues, to hold against what its trace says.

using CallLog = std::vector<std::string>;

class RecorderEvent final : public Event {
 public:
  [[nodiscard]] bool is_done() const override { return true; }
  [[nodiscard]] Result<void> synchronize(Deadline) override { return {}; }
  [[nodiscard]] Result<double> elapsed_us(const Event&) const override { return 0.0; }
};

class RecorderStream final : public Stream {
 public:
  RecorderStream(Device& device, std::string name, CallLog& log)
      : Stream(device, 0), name_(std::move(name)), log_(log) {}
  [[nodiscard]] const std::string& name() const { return name_; }
  void add(const std::string& call) { log_.push_back(fmt::format("{}:{}", name_, call)); }
  /// Copies into [begin, end) are called "mv", others "own".
  void set_published(const std::byte* begin, const std::byte* end) {
    begin_ = begin;
    end_ = end;
  }

 protected:
  Result<void> do_copy(const TensorView&, const TensorView& to) override {
    const auto* target = to.data_as<const std::byte>();
    add(target >= begin_ && target < end_ ? "mv" : "own");
    return {};
  }
  Result<void> do_write_value32(std::uint32_t*, std::uint32_t) override { return {}; }
  Result<void> do_memset32(std::uint32_t*, std::uint32_t, std::int64_t) override { return {}; }
  Result<void> do_sleep(std::chrono::nanoseconds) override {
    add("nap");
    return {};
  }
  Result<void> do_record(Event&) override { return {}; }
  Result<void> do_wait(const Event&) override { return {}; }
  Result<void> do_wait(Stream& other) override {
    log_.push_back(fmt::format("{}>{}", static_cast<RecorderStream&>(other).name(), name_));
    return {};
  }
  Result<void> do_synchronize(Deadline) override { return {}; }

 private:
  std::string name_;
  CallLog& log_;
  const std::byte* begin_ = nullptr;
  const std::byte* end_ = nullptr;
};

/// What a product is called, or why it cannot be enqueued; `a` and `out` are its operands.
using NameProduct = std::function<Result<std::string>(const TensorView& a, const TensorView& out)>;

class RecorderProduct final : public gemm::Implementation {
 public:
  explicit RecorderProduct(NameProduct name) : name_(std::move(name)) {}
  [[nodiscard]] std::string_view name() const override { return "recorder"; }
  bool accepts(const gemm::Product&, std::string*) const override { return true; }
  Result<void> run(const gemm::Product&, const gemm::ProductArgs& args, Stream& stream) const override {
    const auto name = name_(*args.a, *args.out);
    if (!name) return tl::unexpected(name.error());
    static_cast<RecorderStream&>(stream).add(*name);
    return {};
  }

 private:
  NameProduct name_;
};

class RecorderProducts final : public gemm::Backend {
 public:
  explicit RecorderProducts(NameProduct name) : product_(std::move(name)), all_{&product_} {}
  [[nodiscard]] std::span<const gemm::Implementation* const> implementations() const override { return all_; }

 private:
  RecorderProduct product_;
  std::array<const gemm::Implementation*, 1> all_;
};

class RecorderSums final : public coll::Backend {
 public:
  Result<void> reduce_stack(const coll::ReduceStackArgs&, Stream& stream) override {
    static_cast<RecorderStream&>(stream).add("sum");
    return {};
  }
};

class RecorderDevice final : public Device {
 public:
  RecorderDevice() : Device({DeviceKind::kCpu, 0}, Config{}) {}
  /// With products and sums.
  explicit RecorderDevice(NameProduct name) : RecorderDevice() {
    attach<gemm::Backend>(std::make_shared<RecorderProducts>(std::move(name)));
    attach<coll::Backend>(std::make_shared<RecorderSums>());
  }
  [[nodiscard]] std::string description() const override { return "recorder"; }
  [[nodiscard]] bool is_host_accessible() const override { return true; }
  [[nodiscard]] Result<std::unique_ptr<Stream>> create_stream(int) override {
    return fail(ErrorCode::kInternal, "a program made a stream");
  }
  [[nodiscard]] Result<std::unique_ptr<Event>> create_event() override {
    return std::make_unique<RecorderEvent>();
  }

 protected:
  Result<Buffer> do_allocate(std::int64_t) override {
    return fail(ErrorCode::kInternal, "a program allocated");
  }
  Result<void> do_zero(void*, std::int64_t) override { return {}; }
  Result<void> do_copy_from_host(const void*, const TensorView&) override { return {}; }
  Result<void> do_copy_to_host(const TensorView&, void*) override { return {}; }
};

class RecorderHandle final : public symm::Handle {
 public:
  RecorderHandle(int rank, int world, std::int64_t num_bytes, int base_channel, Device& device)
      : rank_(rank),
        base_channel_(base_channel),
        num_bytes_(num_bytes),
        device_(device),
        memory_(static_cast<std::size_t>(world) * static_cast<std::size_t>(num_bytes)),
        pads_(static_cast<std::size_t>(world)) {
    for (int q = 0; q < world; ++q) buffers_.push_back(memory_.data() + q * num_bytes);
  }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world_size() const override { return static_cast<int>(buffers_.size()); }
  [[nodiscard]] Device& device() const override { return device_; }
  [[nodiscard]] bool is_of(const Group&) const override { return true; }
  [[nodiscard]] std::int64_t buffer_size_bytes() const override { return num_bytes_; }
  [[nodiscard]] std::int64_t signal_pad_size_bytes() const override { return 4096; }
  [[nodiscard]] std::int64_t offset_bytes() const override { return 0; }
  [[nodiscard]] std::span<void* const> buffer_ptrs() const override { return buffers_; }
  [[nodiscard]] std::span<std::uint32_t* const> signal_pad_ptrs() const override { return pads_; }
  [[nodiscard]] void* const* buffer_ptrs_dev() const override { return buffers_.data(); }
  [[nodiscard]] std::uint32_t* const* signal_pad_ptrs_dev() const override { return pads_.data(); }
  [[nodiscard]] symm::KernelHandle kernel_handle(symm::Timeout) const override { return {}; }
  /// The second slot's first byte, for programs that have two.
  void set_slot_bytes(std::int64_t num_bytes) { slot_bytes_ = num_bytes; }
  [[nodiscard]] const std::byte* own() const {
    return static_cast<const std::byte*>(buffers_[static_cast<std::size_t>(rank_)]);
  }
  /// "P0" or "P1"; empty where there are no slots or `data` starts neither.
  [[nodiscard]] std::string slot_of(const void* data, int rank) const {
    const auto at = static_cast<const std::byte*>(data) -
                    static_cast<const std::byte*>(buffers_[static_cast<std::size_t>(rank)]);
    if (slot_bytes_ == 0) return at == 0 ? "" : "?";
    return at == 0 ? "P0" : at == slot_bytes_ ? "P1" : "?";
  }

 protected:
  [[nodiscard]] Result<void> check_process() const override { return {}; }
  [[nodiscard]] Result<void> check_usable(const Stream&) const override { return {}; }
  Result<void> do_put_signal(Stream&, int, int, symm::Timeout) override { return {}; }
  Result<void> do_wait_signal(Stream&, int, int, symm::Timeout) override { return {}; }
  Result<void> do_barrier(Stream& stream, int channel, symm::Timeout) override {
    static_cast<RecorderStream&>(stream).add(fmt::format("B{}", channel - base_channel_));
    return {};
  }
  Result<void> do_get(Stream& stream, const TensorView& from, const TensorView&, int peer) override {
    const std::string slot = slot_of(from.data, peer);
    static_cast<RecorderStream&>(stream).add(fmt::format("get{}{}{}", peer, slot.empty() ? "" : ".", slot));
    return {};
  }
  Result<void> do_put(Stream& stream, const TensorView&, const TensorView&, int peer) override {
    static_cast<RecorderStream&>(stream).add(fmt::format("put{}", peer));
    return {};
  }

 private:
  int rank_;
  int base_channel_;
  std::int64_t num_bytes_;
  Device& device_;
  std::vector<std::byte> memory_;
  std::vector<void*> buffers_;
  std::vector<std::uint32_t*> pads_;
  std::int64_t slot_bytes_ = 0;
};

}  // namespace tandem::test
