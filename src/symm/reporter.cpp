#include "symm/reporter.hpp"

#include <algorithm>
#include <cstring>

#include "base/format.hpp"
#include "base/try.hpp"
#include "symm/handle_table.hpp"
#include "symm/service.hpp"

namespace tandem::symm {

Result<std::shared_ptr<Handle>> reporter_of(Group& group, Device& device) {
  HandleTable& table = HandleTable::of(group);
  if (auto known = table.find_reporter(device)) return known;
  TANDEM_ASSIGN(Service * service, service_of(device));
  if (service->is_capturing()) {
    return failf(
        ErrorCode::kUnsupported,
        "the NaN check: its first call with this group on {} while a stream is capturing: call an op "
        "of the group with the check before",
        to_string(device.id()));
  }
  TANDEM_ASSIGN(std::shared_ptr<Peers> peers, service->make_reporter(group));
  peers->belong_to(group, device);
  auto handle = service->make_handle(peers, 0);
  table.insert_reporter(peers, handle);
  return handle;
}

void set_sizes(const Dims& sizes, NanReport& report) {
  report.num_dims = sizes.size();
  std::copy(sizes.begin(), sizes.end(), report.sizes);
}

void set_what(std::string_view op, std::string_view tensor, NanReport& report) {
  // The tensor's name is never cut.
  constexpr std::string_view kBetween = ": ";
  const std::size_t room = sizeof(report.what) - 1;
  const std::size_t name = std::min(tensor.size(), room - kBetween.size());
  const std::size_t length = std::min(op.size(), room - kBetween.size() - name);
  char* to = std::copy_n(op.begin(), length, report.what);
  to = std::copy(kBetween.begin(), kBetween.end(), to);
  to = std::copy_n(tensor.begin(), name, to);
  *to = '\0';
}

Error nan_error(int rank, const NanReport& report) {
  // Another process may have written it.
  const auto num_dims = static_cast<int>(std::clamp<std::int64_t>(report.num_dims, 0, kMaxDims));
  Dims index;
  for (int d = 0; d < num_dims; ++d) index.push_back(0);
  std::int64_t rest = report.first;
  for (int d = num_dims - 1; d >= 0; --d) {
    const std::int64_t size = std::max<std::int64_t>(report.sizes[d], 1);
    index[d] = d == 0 ? rest : rest % size;
    rest /= size;
  }
  const std::string_view what(report.what, ::strnlen(report.what, sizeof(report.what)));
  const std::string where = report.count == 1 ? "" : "the first ";
  return Error(ErrorCode::kNumeric,
               fmt::format("rank {}: {} has {} NaN{}, {}at element {} ({})", rank, what, report.count,
                           report.count == 1 ? "" : "s", where, report.first, to_string(index)));
}

}  // namespace tandem::symm
