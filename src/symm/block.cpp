#include <algorithm>
#include <tandem/symm/symmetric_memory.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "symm/anchor.hpp"
#include "symm/byte_size.hpp"
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
  group = &its_group;
  control = &bootstrap::control_of(its_group);
  device = &own_block->device();
  rank = its_group.rank();
  world_size = its_group.size();
  buffer_bytes = own_block->size_bytes();
  pad_bytes = num_pad_bytes;
  block = std::move(own_block);
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

Result<std::int64_t> byte_size(const Dims& sizes, DType dtype, std::string_view who) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;
  const std::int64_t element_bytes = size_bytes(dtype);
  if (element_bytes == 0)
    return failf(ErrorCode::kInvalidArgument, "{}: {} is no dtype", who, static_cast<int>(dtype));
  std::int64_t num_bytes = element_bytes;
  bool overflow = false;
  bool is_empty = false;
  for (const std::int64_t size : sizes) {
    if (size < 0) {
      return failf(ErrorCode::kInvalidArgument, "{}: sizes {}: negative size {}", who, to_string(sizes),
                   size);
    }
    is_empty = is_empty || size == 0;
    if (!is_empty) overflow = __builtin_mul_overflow(num_bytes, size, &num_bytes) || overflow;
  }
  if (is_empty) return 0;
  if (overflow || num_bytes > kMostBytes) {
    return failf(ErrorCode::kInvalidArgument, "{}: sizes {} of {}: more than 2^62 bytes", who,
                 to_string(sizes), to_string(dtype));
  }
  return num_bytes;
}

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
  ByteRange range{data, data};
  if (view.numel() == 0) return range;
  for (int d = 0; d < view.dim(); ++d) {
    const std::int64_t reach = (view.size(d) - 1) * view.stride(d) * size_bytes(view.dtype);
    (reach < 0 ? range.first : range.last) += reach;
  }
  range.last += size_bytes(view.dtype);
  return range;
}

}  // namespace tandem::symm
