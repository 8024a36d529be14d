#include "symm/agreement.hpp"

#include "base/try.hpp"
#include "symm/service.hpp"

namespace tandem::symm {

Result<void> agree(Stream& stream, Group& group, const bootstrap::Fingerprint& fingerprint,
                   std::chrono::milliseconds patience) {
  TANDEM_TRY(group.status());
  TANDEM_ASSIGN(Service * service, service_of(stream.device()));
  // Last: a number that is taken and not agreed on would hold up the other ranks.
  return service->enqueue_agreement(stream, group, bootstrap::control_of(group).next_sequence(), fingerprint,
                                    patience);
}

Result<void> agree_now(Group& group, const bootstrap::Fingerprint& fingerprint) {
  TANDEM_TRY(group.status());
  bootstrap::Control& control = bootstrap::control_of(group);
  const std::uint64_t sequence = control.next_sequence();
  const Deadline deadline = Deadline::after(group.config().rendezvous_timeout);
  TANDEM_TRY(control.wait_agreed(sequence - 1, deadline));
  return control.agree(sequence, fingerprint, deadline);
}

Result<void> end_call(Stream& stream, Group& group) {
  TANDEM_ASSIGN(Service * service, service_of(stream.device()));
  return service->end_call(group);
}

Error refuse(Group& group, Error why) {
  if (auto here = bootstrap::control_of(group).check_process(); !here) return std::move(here).error();
  group.refuse_call(why);
  return why;
}

}  // namespace tandem::symm
