#include "transport/cuda/nccl.hpp"

#include <cstdlib>
#include <cstring>
#include <span>

#include "base/environment.hpp"
#include "base/format.hpp"
#include "base/try.hpp"
#include "transport/cuda/nccl_transport.hpp"

namespace tandem::transport::cuda {
namespace {

/// The id that rank 0 makes, for all ranks. A store may serve several transports, one after the other: every
/// rank counts once in each, so all of one get the same number.
Result<ncclUniqueId> agree_on_id(const NcclApi& api, int rank, int size, Store& store, Deadline deadline) {
  TANDEM_ASSIGN(const std::int64_t count, store.add("tandem/nccl/opened", 1));
  const std::string key = fmt::format("tandem/nccl/{}/id", (count - 1) / size);
  ncclUniqueId id = {};
  if (rank == 0) {
    TANDEM_TRY(api.check("id", api.get_unique_id(&id)));
    TANDEM_TRY(store.set(key, std::as_bytes(std::span(&id, 1))));
    return id;
  }
  TANDEM_ASSIGN(const Store::Bytes bytes, store.get(key, deadline));
  if (bytes.size() != sizeof(id)) {
    return failf(ErrorCode::kMismatch, "NCCL: rank 0 has told an id of {} bytes, and here it has {}",
                 bytes.size(), sizeof(id));
  }
  std::memcpy(&id, bytes.data(), sizeof(id));
  return id;
}

/// Of its kernels: as NCCL's own variable says. Or else as many as bring rows beside a product in good time,
/// which leaves them so many multiprocessors (bench/results/h200_x2_hosts.json).
int most_blocks() {
  constexpr int kEnough = 16;
  const int asked = std::atoi(environment_variable("NCCL_MAX_CTAS").value_or("0").c_str());
  return asked > 0 ? asked : kEnough;
}

}  // namespace

Result<std::shared_ptr<Transport>> open_nccl(int rank, int size, Store& store, Device& device) {
  constexpr int kMostUrgent = -100;  // the device takes the most urgent that it has
  const auto deadline = Deadline::after(device.config().rendezvous_timeout);
  TANDEM_ASSIGN(const NcclApi* const api, NcclApi::load(device.config()));
  TANDEM_ASSIGN(const ncclUniqueId id, agree_on_id(*api, rank, size, store, deadline));
  const int gpu = device.id().index;
  auto communicator = std::make_shared<NcclCommunicator>(*api, gpu, rank);
  const NcclTransport::Identity self{.rank = rank, .size = size, .most_blocks = most_blocks()};
  TANDEM_TRY(communicator->init(
      id, size, deadline, []() -> Result<void> { return {}; }, self.most_blocks));
  TANDEM_ASSIGN(auto stream, device.create_stream(kMostUrgent));
  return std::make_shared<NcclTransport>(*api, std::move(communicator), self, gpu, std::move(stream), device);
}

Result<LibraryReport> library_report(const Config& config) {
  TANDEM_ASSIGN(const NcclApi* const api, NcclApi::load(config));
  return api->report;
}

}  // namespace tandem::transport::cuda
