#pragma once

#include <memory>
#include <mutex>
#include <tandem/base/tensor.hpp>
#include <tandem/symm/handle.hpp>
#include <vector>

#include "symm/service.hpp"

namespace tandem::symm {

/// Owner of a symmetric tensor's memory. While a tensor holds it, the handles made from the tensor stay:
/// whether a rendezvous is a look-up or an exchange must not depend on which ranks kept their handle. A
/// handle keeps the block but not the anchor, so there is no cycle.
class Anchor {
 public:
  explicit Anchor(std::shared_ptr<Block> block) : block_(std::move(block)) {}

  [[nodiscard]] const std::shared_ptr<Block>& block() const { return block_; }
  /// Keeps `handle` until release(table) or the anchor's end.
  void keep(const void* table, std::shared_ptr<Handle> handle);
  /// Drops the handles of one group's table.
  void release(const void* table);

  /// As owner of a Tensor, in a form that of() recognises.
  [[nodiscard]] static std::shared_ptr<Anchor> make(std::shared_ptr<Block> block);
  /// The anchor of a tensor from empty(), or null.
  [[nodiscard]] static std::shared_ptr<Anchor> of(const Tensor& tensor);

 private:
  struct Kept {
    const void* table;
    std::shared_ptr<Handle> handle;
  };
  std::shared_ptr<Block> block_;
  std::mutex mutex_;
  std::vector<Kept> kept_;
};

/// The tensor that owns `block`, all of it.
[[nodiscard]] Tensor make_tensor(const Service& service, std::shared_ptr<Block> block, const Dims& sizes,
                                 DType dtype);

}  // namespace tandem::symm
