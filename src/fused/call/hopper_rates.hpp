#pragma once

namespace tandem::fused {

/// What an H200 reaches in 16-bit products and in a copy to a peer; only their ratio to each other and to the
/// times in choose.cpp matters.
constexpr double kHopperFlopsPerUs = 700e6;
constexpr double kHopperCopyBytesPerUs = 360e3;

}  // namespace tandem::fused
