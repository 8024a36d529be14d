#pragma once

#include <functional>
#include <string>
#include <tandem/base/config.hpp>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>

namespace tandem {

/// Runs `rank_main` on `size` threads, each with its own Group of the same name over one in-process store.
/// Returns the first error that a rank returned; an error on one rank poisons the group for the others. The
/// groups are told no device, so `auto` takes what is predicted.
[[nodiscard]] Result<void> run_thread_ranks(int size, const Config& config,
                                            const std::function<Result<void>(Group&)>& rank_main);

}  // namespace tandem
