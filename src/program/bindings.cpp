#include "program/bindings.hpp"

#include "base/alignment.hpp"

namespace tandem::program {
namespace {

/// Where roots of these spaces begin in memory of this rank.
struct Place {
  std::byte* base = nullptr;
  symm::Handle* handle = nullptr;
  std::int64_t offset_bytes = 0;  ///< of `base` from the handle's own offset
};

void place(const Root& root, const Place& at, DeviceId device, Bindings::Bound& bound) {
  std::byte* const data = at.base == nullptr ? nullptr : at.base + root.offset_bytes;
  if (!root.sizes.empty()) bound.view = TensorView::contiguous(nullptr, root.sizes, root.dtype, device);
  bound.view.data = data;
  bound.handle = at.handle;
  bound.offset_bytes = at.offset_bytes + root.offset_bytes;
}

std::byte* as_aligned_as_can_be() {
  return reinterpret_cast<std::byte*>(kMostAlignment);
}

std::byte* own_memory(symm::Handle* handle) {
  if (handle == nullptr) return nullptr;
  return static_cast<std::byte*>(handle->buffer_ptrs()[static_cast<std::size_t>(handle->rank())]);
}

}  // namespace

Bindings::Bindings(const Program& program) : roots_(program.roots.size()) {}

void Bindings::bind_for_every_part(RootId root, const TensorView& element) {
  at(root) = {.view = element, .is_every_part = true};
}

void Bindings::bind_in_scratch(RootId root, std::int64_t offset_bytes, const Dims& sizes, DType dtype,
                               DeviceId device) {
  Bound& bound = at(root);
  std::byte* const data = scratch_ == nullptr ? nullptr : scratch_ + bound.offset_bytes + offset_bytes;
  bound.view = TensorView::contiguous(data, sizes, dtype, device);
}

void Bindings::bind_in_place(RootId root, const TensorView& view, symm::Handle* handle, std::int64_t offset) {
  at(root) = {.view = view, .handle = handle, .offset_bytes = offset * size_bytes(view.dtype)};
}

void Bindings::bind_scratch(const Program& program, std::byte* base, DeviceId device) {
  if (is_scratch_bound_ && base == scratch_) return;
  is_scratch_bound_ = true;
  scratch_ = base;
  for (std::size_t i = 0; i < roots_.size(); ++i) {
    if (program.roots[i].space == Space::kScratch) place(program.roots[i], {.base = base}, device, roots_[i]);
  }
}

void Bindings::bind_workspace(const Program& program, symm::Handle* workspace, DeviceId device) {
  std::byte* const base = own_memory(workspace);
  if (is_workspace_bound_ && base == workspace_memory_ && workspace == workspace_) return;
  is_workspace_bound_ = true;
  workspace_ = workspace;
  workspace_memory_ = base;
  for (std::size_t i = 0; i < roots_.size(); ++i) {
    if (program.roots[i].space != Space::kWorkspace) continue;
    place(program.roots[i], {.base = base, .handle = workspace}, device, roots_[i]);
  }
}

void Bindings::bind_workspace_like(const Program& program, DeviceId device) {
  if (is_workspace_bound_) return;  // a real one is as good
  for (std::size_t i = 0; i < roots_.size(); ++i) {
    if (program.roots[i].space == Space::kWorkspace)
      place(program.roots[i], {.base = as_aligned_as_can_be()}, device, roots_[i]);
  }
}

void Bindings::bind_inbox(const Program& program, const symm::InboxSlot& inbox, DeviceId device) {
  inbox_ = inbox;
  std::byte* const block = own_memory(inbox.handle);
  for (std::size_t i = 0; i < roots_.size(); ++i) {
    const Root& root = program.roots[i];
    const bool is_data = root.space == Space::kInbox;
    if (!is_data && root.space != Space::kInboxWords && root.space != Space::kInboxFlags) continue;
    const std::int64_t area = is_data                            ? inbox.data_bytes
                              : root.space == Space::kInboxWords ? inbox.words_bytes
                                                                 : inbox.flags_bytes;
    place(root, {.base = block + area, .handle = inbox.handle, .offset_bytes = area}, device, roots_[i]);
  }
}

void Bindings::bind_inbox_like(const Program& program, DeviceId device) {
  if (inbox_.handle != nullptr) return;
  for (std::size_t i = 0; i < roots_.size(); ++i) {
    if (program.roots[i].space == Space::kInbox)
      place(program.roots[i], {.base = as_aligned_as_can_be()}, device, roots_[i]);
  }
}

bool Bindings::is_absent(const Operand& operand) const {
  if (operand.is_absent()) return true;
  const TensorView& whole = root(operand.root).view;
  return whole.data == nullptr && whole.dim() == 0;
}

TensorView Bindings::view(const Operand& operand) const {
  const Bound& bound = root(operand.root);
  const TensorView& whole = bound.view;
  return operand.dim < 0 || bound.is_every_part ? whole
                                                : whole.narrow(operand.dim, operand.first, operand.size);
}

}  // namespace tandem::program
