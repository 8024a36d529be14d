#pragma once

#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/store.hpp>
#include <tandem/bootstrap/transport.hpp>
#include <tandem/device/device.hpp>

namespace tandem {

/// Loads NCCL (Config::nccl_library, else the usual places) and connects the `size` ranks of `store`, each on
/// a GPU of its own: a transport for GroupOptions::transport. This is a collective call of all ranks. The
/// device and the store must outlive it. Rows cross by ncclSend and ncclRecv; the first exchange of two ranks
/// waits on the host until both have come.
///
/// NCCL has no channels. So groups that share a transport must make their calls in one order on all ranks;
/// groups of several host threads need a transport each. What crosses between hosts cannot be recorded in a
/// graph.
/// Errors:  kInvalidArgument for a rank outside [0, size); kUnsupported for a device that is no GPU, without
///          NCCL 2.14 or later, and in builds without CUDA; kTimeout if ranks do not come; kDriver with
///          NCCL's text, so where two ranks have one GPU.
[[nodiscard]] Result<std::shared_ptr<Transport>> open_nccl(int rank, int size, Store& store, Device& device);

}  // namespace tandem
