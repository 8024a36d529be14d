#pragma once

#include <memory>

#include "device/cpu/work_queue.hpp"
#include "device/deferred_frees.hpp"

namespace tandem::cpu {

/// Of a CPU device: a service of its own, for the leaves that have memory of their own.
using CpuFrees = DeferredFrees<std::shared_ptr<WorkQueue>>;

}  // namespace tandem::cpu
