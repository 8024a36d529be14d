#pragma once

#include <string>
#include <string_view>

namespace tandem::cpu {

/// "Intel(R) Xeon(R) Processor @ 2.80GHz"; "unknown processor" where the system does not say.
[[nodiscard]] std::string processor_name();

/// The best instruction set that tandem has kernels for and this processor can run: "avx512_bf16",
/// "avx512", "avx2" or "scalar".
[[nodiscard]] std::string_view best_isa();

}  // namespace tandem::cpu
