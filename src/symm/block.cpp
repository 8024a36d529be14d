#include <limits>
#include <tandem/symm/symmetric_memory.hpp>

#include "base/byte_size.hpp"
#include "base/format.hpp"
#include "base/try.hpp"
#include "symm/anchor.hpp"
#include "symm/byte_range.hpp"
#include "symm/exchange.hpp"
#include "symm/service.hpp"

namespace tandem::symm {
namespace {

std::uintptr_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

}  // namespace

Block::~Block() {
  if (index_) index_->remove(*this);
}

void BlockIndex::add(const std::shared_ptr<BlockIndex>& index, Block& block, const Dims& sizes, DType dtype) {
  block.sizes_ = sizes;
  block.dtype_ = dtype;
  block.index_ = index;
  const std::lock_guard lock(index->mutex_);
  block.ordinal_ = index->num_added_++;
  const std::uintptr_t begin = address_of(block.data());
  index->by_begin_[begin] = {begin + static_cast<std::uintptr_t>(block.size_bytes()), block.ordinal_};
}

void BlockIndex::remove(const Block& block) {
  const std::lock_guard lock(mutex_);
  const auto found = by_begin_.find(address_of(block.data()));
  if (found != by_begin_.end() && found->second.ordinal == block.ordinal_) by_begin_.erase(found);
}

bool BlockIndex::contains(const void* first, const void* last) const {
  const std::lock_guard lock(mutex_);
  auto after = by_begin_.upper_bound(address_of(first));
  if (after == by_begin_.begin()) return false;
  const auto& [begin, known] = *std::prev(after);
  return address_of(first) >= begin && address_of(last) <= known.end;
}

std::int64_t BlockIndex::size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(by_begin_.size());
}

void Peers::belong_to(Group& its_group, std::shared_ptr<Block> own_block, std::int64_t num_pad_bytes) {
  belong_to(its_group, own_block->device());
  buffer_bytes = own_block->size_bytes();
  pad_bytes = num_pad_bytes;
  block = std::move(own_block);
}

void Peers::belong_to(Group& its_group, Device& its_device) {
  group = &its_group;
  control = &bootstrap::control_of(its_group);
  device = &its_device;
  rank = its_group.rank();
  world_size = its_group.size();
}

Result<Service*> service_of(const Device& device) {
  Service* service = device.service<Service>();
  if (service == nullptr) {
    return failf(ErrorCode::kUnsupported,
                 "device {} has no symmetric memory attached: get it from open_device()",
                 to_string(device.id()));
  }
  return service;
}

// NOLINTBEGIN(performance-unnecessary-value-param): those who place memory keep what they get.
Result<Placed> Service::place(Group& /*group*/, std::vector<Record> /*records*/) {
  return fail(ErrorCode::kInternal, "symmetric memory: this device cannot place memory");
}

Result<void> Service::enqueue_connect(Stream& /*stream*/, std::shared_ptr<Peers> /*peers*/) {
  return fail(ErrorCode::kInternal, "symmetric memory: this device cannot place memory");
}
// NOLINTEND(performance-unnecessary-value-param)

Result<Tensor> empty(const Dims& sizes, DType dtype, Device& device) {
  TANDEM_ASSIGN(const std::int64_t num_bytes, byte_size(sizes, dtype, "symm::empty"));
  TANDEM_ASSIGN(Service * service, service_of(device));
  if (service->is_capturing()) {
    return failf(ErrorCode::kUnsupported,
                 "symm::empty: {} bytes while a stream of {} is capturing: allocate before", num_bytes,
                 to_string(device.id()));
  }
  TANDEM_ASSIGN(std::shared_ptr<Block> block, service->allocate(num_bytes));
  return make_tensor(*service, std::move(block), sizes, dtype);
}

Tensor make_tensor(const Service& service, std::shared_ptr<Block> block, const Dims& sizes, DType dtype) {
  BlockIndex::add(service.index(), *block, sizes, dtype);
  const TensorView view = TensorView::contiguous(block->data(), sizes, dtype, block->device().id());
  return Tensor(view, Anchor::make(std::move(block)));
}

bool is_symmetric(const TensorView& view, const Device& device) {
  const Service* service = device.service<Service>();
  if (service == nullptr || !(view.device == device.id()) || view.data == nullptr) return false;
  const ByteRange range = byte_range(view);
  return service->index()->contains(range.first, range.last);
}

ByteRange byte_range(const TensorView& view) {
  const auto* data = static_cast<const std::byte*>(view.data);
  if (view.numel() == 0) return {data, data};
  std::uintptr_t first = address_of(data);
  std::uintptr_t last = first;
  bool overflow = false;
  const auto reach = [&](std::int64_t elements) {
    std::int64_t num_bytes = 0;
    overflow = __builtin_mul_overflow(elements, size_bytes(view.dtype), &num_bytes) || overflow;
    std::uintptr_t& end = num_bytes < 0 ? first : last;
    overflow = __builtin_add_overflow(end, num_bytes, &end) || overflow;
  };
  for (int d = 0; d < view.dim(); ++d) {
    std::int64_t elements = 0;
    overflow = __builtin_mul_overflow(view.size(d) - 1, view.stride(d), &elements) || overflow;
    reach(elements);
  }
  reach(1);
  if (overflow) last = std::numeric_limits<std::uintptr_t>::max();  // more than any memory is
  return {reinterpret_cast<const std::byte*>(overflow ? 0 : first), reinterpret_cast<const std::byte*>(last)};
}

}  // namespace tandem::symm
