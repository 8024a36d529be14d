#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tandem/base/shape.hpp>

namespace tandem {

/// How a fused op moves data: `native` is one kernel that consumes its input as it arrives, `pipelined` two
/// streams of chunks, `serial` a collective and then a product. kAuto picks; a report says what was picked
/// and why.
enum class Algorithm : std::uint8_t { kAuto, kNative, kPipelined, kSerial };
[[nodiscard]] std::string_view to_string(Algorithm algorithm);
[[nodiscard]] std::optional<Algorithm> parse_algorithm(std::string_view name);

/// What ran and why. The texts live as long as the group.
struct OpReport {
  Algorithm algorithm = Algorithm::kAuto;
  std::string_view reason;  ///< "asked for", "predicted 812 us against 1010 us serial", ...
  std::string_view key;     ///< the problem: "all_gather_matmul 4096x3584x8192 bf16 dim 0 w4"
};

/// Sizes and strides that an output must have.
struct Layout {
  Dims sizes;
  Dims strides;
};

}  // namespace tandem
