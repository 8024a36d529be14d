#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>
#include <vector>

#include "program/program.hpp"
#include "symm/inbox.hpp"
#include "symm/kernel_inbox.hpp"

namespace tandem::program {

/// The tensors, memory and streams of one call of a program. Rebound for every call; binding allocates
/// nothing after the first one.
class Bindings {
 public:
  Bindings() = default;
  explicit Bindings(const Program& program);

  /// Tensors of the call. A root that is not bound, or bound to null, is absent.
  void bind(RootId root, const TensorView& view) { at(root) = {.view = view}; }
  /// Null: absent. Nothing to do for a root that the program does not have.
  void bind_optional(RootId root, const TensorView* view) {
    if (root != kNone) at(root) = view == nullptr ? Bound{} : Bound{.view = *view};
  }
  /// One element, which every part of the root is.
  void bind_for_every_part(RootId root, const TensorView& element);
  /// A tensor of a scratch root whose sizes the call knows, so many bytes behind the root's begin. Behind
  /// bind_scratch().
  void bind_in_scratch(RootId root, std::int64_t offset_bytes, const Dims& sizes, DType dtype,
                       DeviceId device);
  /// Symmetric memory of the caller's: `offset` in elements of `view` from the handle's own offset.
  void bind_in_place(RootId root, const TensorView& view, symm::Handle* handle, std::int64_t offset);
  /// Whose ranks meet, and whose timeline notes the steps.
  void bind_group(Group& group) { group_ = &group; }
  void bind_lane(Lane lane, Stream& stream) { lanes_[static_cast<std::size_t>(lane)] = &stream; }
  /// Everything that the program has in scratch memory, which begins at `base`.
  void bind_scratch(const Program& program, std::byte* base, DeviceId device);
  /// Everything that the program has in this workspace; null where it needs none.
  void bind_workspace(const Program& program, symm::Handle* workspace, DeviceId device);
  /// Stands in for a workspace that is not there yet: roots are aligned like it, and nobody reads them.
  void bind_workspace_like(const Program& program, DeviceId device);
  /// Everything that the program has in this slot.
  void bind_inbox(const Program& program, const symm::InboxSlot& inbox, DeviceId device);
  /// Where products that depart leave what they send.
  void bind_kernel_inbox(const symm::KernelInboxPlace& place) { kernel_inbox_ = place; }
  /// As bind_workspace_like().
  void bind_inbox_like(const Program& program, DeviceId device);

  // What a runner reads.
  struct Bound {
    TensorView view = absent();
    symm::Handle* handle = nullptr;  ///< of memory that peers reach
    std::int64_t offset_bytes = 0;   ///< from the handle's own offset, or of scratch memory
    bool is_every_part = false;
  };
  [[nodiscard]] const Bound& root(RootId id) const { return roots_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] bool is_absent(const Operand& operand) const;
  [[nodiscard]] TensorView view(const Operand& operand) const;
  [[nodiscard]] Stream& lane(Lane lane) const { return *lanes_[static_cast<std::size_t>(lane)]; }
  [[nodiscard]] Group& group() const { return *group_; }
  [[nodiscard]] symm::Handle* workspace() const { return workspace_; }
  [[nodiscard]] const symm::InboxSlot& inbox() const { return inbox_; }
  [[nodiscard]] const symm::KernelInboxPlace& kernel_inbox() const { return kernel_inbox_; }
  [[nodiscard]] std::span<const Bound> roots() const { return roots_; }
  [[nodiscard]] const void* scratch() const { return scratch_; }

 private:
  /// No tensor at all: of no dims and without memory.
  [[nodiscard]] static TensorView absent() { return {}; }
  [[nodiscard]] Bound& at(RootId id) { return roots_[static_cast<std::size_t>(id)]; }

  std::vector<Bound> roots_;
  Group* group_ = nullptr;
  std::array<Stream*, kMaxLanes> lanes_ = {};
  bool is_scratch_bound_ = false;
  bool is_workspace_bound_ = false;
  std::byte* scratch_ = nullptr;
  symm::Handle* workspace_ = nullptr;
  const void* workspace_memory_ = nullptr;
  symm::InboxSlot inbox_;
  symm::KernelInboxPlace kernel_inbox_;
};

}  // namespace tandem::program
