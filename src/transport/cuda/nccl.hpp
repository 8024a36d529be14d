#pragma once

#include <memory>
#include <tandem/base/config.hpp>
#include <tandem/bootstrap/store.hpp>
#include <tandem/bootstrap/transport.hpp>
#include <tandem/device/device.hpp>

#include "base/shared_library.hpp"

namespace tandem::transport::cuda {

// What builds with CUDA have of NCCL, with its header or without (without_nccl.cpp).

/// tandem::open_nccl() of such builds.
[[nodiscard]] Result<std::shared_ptr<Transport>> open_nccl(int rank, int size, Store& store, Device& device);

/// The NCCL that was loaded, or why none was.
[[nodiscard]] Result<LibraryReport> library_report(const Config& config);

}  // namespace tandem::transport::cuda
