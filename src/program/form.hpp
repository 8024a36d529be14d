#pragma once

#include <cstdint>
#include <span>
#include <tandem/base/error.hpp>

#include "program/program.hpp"

namespace tandem::program {

/// What can be seen of the programs of all ranks without running them: every step has its lanes, peer and
/// product, operands lie inside their roots and roots inside what is reserved, every lane is joined in the
/// end, and all ranks pass the same barriers and collectives on the same lanes.
/// Errors: kInternal with the program, the rank and the step.
[[nodiscard]] Result<void> check_form(std::span<const Program> ranks);

/// Of the caller's: their sizes and places are not known.
[[nodiscard]] bool is_callers(Space space);
/// All ranks take the step together.
[[nodiscard]] bool is_together(const Step& step);
/// Bytes that a program with these needs reserves of a space.
[[nodiscard]] std::int64_t reserved_bytes(const MemoryNeeds& needs, Space space);

}  // namespace tandem::program
