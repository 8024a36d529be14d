#pragma once

#include <memory>
#include <tandem/base/error.hpp>

#include "program/bindings.hpp"
#include "program/program.hpp"
#include "timeline/timeline_impl.hpp"

namespace tandem::program {

/// Enqueues every step on its lane, in order; the only code that does. The ranks have agreed on the call
/// before. Allocates nothing after the first call. A program that breaks off still joins its lanes to the
/// caller's: that is the one a caller waits for before memory goes. `steps` are the program's, made at the
/// first call that is noted in a timeline of the group; null: none is.
/// Errors: the first step's that cannot be enqueued.
[[nodiscard]] Result<void> run(const Program& program, const Bindings& bindings,
                               std::shared_ptr<const timeline::StepList>* steps = nullptr);

/// Makes, before any step is enqueued, what the products make at their first run: kernels are loaded, scratch
/// memory is taken. Of the bound tensors only sizes, strides and alignment count.
[[nodiscard]] Result<void> prepare(const Program& program, const Bindings& bindings);

}  // namespace tandem::program
