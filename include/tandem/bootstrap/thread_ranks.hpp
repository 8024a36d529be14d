#pragma once

#include <functional>
#include <string>
#include <tandem/base/config.hpp>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>

namespace tandem {

/// Runs `rank_main` on `size` threads. Each is a rank of one group, with its own Group object. An error on
/// one rank poisons the group for the others. The group knows no device, so `auto` uses predictions.
/// Errors:  the first error that a rank returned.
[[nodiscard]] Result<void> run_thread_ranks(int size, const Config& config,
                                            const std::function<Result<void>(Group&)>& rank_main);

}  // namespace tandem
