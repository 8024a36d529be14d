#pragma once

#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/symm/handle.hpp>
#include <tandem/symm/kernel_control.hpp>

namespace tandem::symm {

/// The handle by which work of this rank on a device reports what it finds to the group. It has no memory and
/// no signals: only watch() and KernelHandle::control are of use. Made at first use; local.
/// Errors: those of Device::allocate(); kUnsupported while capturing, where it does not exist yet.
[[nodiscard]] Result<std::shared_ptr<Handle>> reporter_of(Group& group, Device& device);

/// Fills in NanReport::what: "all_gather f32 [8, 4]: input".
void set_what(std::string_view op, std::string_view tensor, NanReport& report);
void set_sizes(const Dims& sizes, NanReport& report);

/// "rank 1: all_gather f32 [8, 4]: input has 3 NaNs, the first at element 5 ([1, 1])", kNumeric.
[[nodiscard]] Error nan_error(int rank, const NanReport& report);

}  // namespace tandem::symm
