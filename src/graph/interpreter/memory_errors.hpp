#pragma once

#include <new>
#include <stdexcept>
#include <tandem/base/error.hpp>

namespace tandem::graph::interpreter {

/// The result of `body`, which makes tensors, or the Error of memory that it could not get.
template <class Body>
[[nodiscard]] auto with_memory_errors(Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc& lack) {
    return fail(ErrorCode::kOutOfMemory, lack.what());
  } catch (const std::length_error& wrong) {
    return fail(ErrorCode::kInvalidArgument, wrong.what());
  }
}

}  // namespace tandem::graph::interpreter
