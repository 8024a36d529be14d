#include "symm/agreement.hpp"

#include "base/try.hpp"
#include "symm/service.hpp"

namespace tandem::symm {

Result<std::uint64_t> agree(Stream& stream, Group& group, const bootstrap::Fingerprint& fingerprint,
                            std::chrono::milliseconds patience) {
  TANDEM_TRY(group.status());
  TANDEM_ASSIGN(Service * service, service_of(stream.device()));
  // Last: a number that is taken and not agreed on would hold up the other ranks.
  const std::uint64_t sequence = bootstrap::control_of(group).begin_call(fingerprint);
  TANDEM_TRY(service->enqueue_agreement(stream, group, sequence, fingerprint, patience));
  return sequence;
}

Result<std::uint64_t> agree_now(Group& group, const bootstrap::Fingerprint& fingerprint) {
  TANDEM_TRY(group.status());
  bootstrap::Control& control = bootstrap::control_of(group);
  const std::uint64_t sequence = control.begin_call(fingerprint);
  const Deadline deadline = Deadline::after(group.config().rendezvous_timeout);
  TANDEM_TRY(control.wait_agreed(sequence - 1, deadline));
  TANDEM_TRY(control.agree(sequence, fingerprint, deadline));
  return sequence;
}

Result<void> end_call(Stream& stream, Group& group, std::uint64_t sequence) {
  TANDEM_ASSIGN(Service * service, service_of(stream.device()));
  bootstrap::control_of(group).note_reached(sequence, CallState::kEnqueued);
  TANDEM_TRY(service->enqueue_end(stream, group, sequence));
  return service->end_call(group);
}

Error refuse(Group& group, Error why) {
  if (auto here = bootstrap::control_of(group).check_process(); !here) return std::move(here).error();
  group.refuse_call(why);
  return why;
}

}  // namespace tandem::symm
