#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tandem::testing {

/// A program, in text, of a gather or a scatter beside a product, and between them what takes a tensor apart
/// and puts it together again: splits, slices, selected items, joins and views, in the order of ranks or in
/// another. `choices` decide everything. All choices behind their end are 0.
[[nodiscard]] std::string random_ladder(std::span<const std::uint8_t> choices);

}  // namespace tandem::testing
