#pragma once

#include "harness/failure.hpp"

namespace tandem::cli {

using harness::bad_input;
using harness::exit_code_of;
using harness::Failure;
using harness::kBadInput;
using harness::kFailed;
using harness::kInterrupted;
using harness::kNotSupported;
using harness::kOk;
using harness::kStrict;
using harness::not_supported;
using harness::out_of_memory;
using harness::take;
using harness::take_input;

}  // namespace tandem::cli
