#pragma once

#include <string>
#include <tandem/base/support.hpp>
#include <tandem/device/device.hpp>
#include <utility>

#include "base/format.hpp"
#include "base/function_ref.hpp"
#include "gemm/backend.hpp"

namespace tandem::gemm {

/// Whether an implementation takes the problem at hand; the reason if not goes to `why_not` unless that is
/// null.
using Accepts = FunctionRef<bool(const Implementation& implementation, std::string* why_not)>;

/// The first implementation of the device that accepts, or null; then `reasons`, if given, has each one's.
[[nodiscard]] const Implementation* choose(const Device& device, Accepts accepts, std::string* reasons);

/// Which question of an Implementation a kind of problem is.
template <class Problem>
using Question = bool (Implementation::*)(const Problem& problem, std::string* why_not) const;

template <class Problem>
[[nodiscard]] const Implementation* choose(const Problem& problem, const Device& device,
                                           Question<Problem> question, std::string* reasons) {
  return choose(
      device,
      [&](const Implementation& implementation, std::string* why_not) {
        return (implementation.*question)(problem, why_not);
      },
      reasons);
}

template <class Problem>
[[nodiscard]] Support support_of(const Problem& problem, const Device& device, Question<Problem> question) {
  std::string reasons;
  if (choose(problem, device, question, &reasons)) return Support::yes();
  return Support::no(std::move(reasons));
}

/// The one that runs the problem. Errors: kUnsupported with each one's reason.
template <class Problem>
[[nodiscard]] Result<const Implementation*> chosen(const Problem& problem, const Device& device,
                                                   Question<Problem> question) {
  if (const Implementation* found = choose(problem, device, question, nullptr)) return found;
  return failf(ErrorCode::kUnsupported, "{} cannot run on {}: {}", to_string(problem), to_string(device.id()),
               support_of(problem, device, question).why_not);
}

}  // namespace tandem::gemm
