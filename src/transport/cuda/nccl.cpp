#include "transport/cuda/nccl.hpp"

#include <array>
#include <cstdlib>
#include <cstring>
#include <span>

#include "base/environment.hpp"
#include "base/format.hpp"
#include "base/try.hpp"
#include "transport/cuda/nccl_transport.hpp"

namespace tandem::transport::cuda {
namespace {

/// The ids that rank 0 makes, for all ranks: of both communicators. A store may serve several transports, one
/// after the other: every rank counts once in each, so all of one get the same number.
using Ids = std::array<ncclUniqueId, 2>;
Result<Ids> agree_on_ids(const NcclApi& api, int rank, int size, Store& store, Deadline deadline) {
  TANDEM_ASSIGN(const std::int64_t count, store.add("tandem/nccl/opened", 1));
  const std::string key = fmt::format("tandem/nccl/{}/ids", (count - 1) / size);
  Ids ids = {};
  if (rank == 0) {
    for (ncclUniqueId& id : ids) TANDEM_TRY(api.check("id", api.get_unique_id(&id)));
    TANDEM_TRY(store.set(key, std::as_bytes(std::span(ids))));
    return ids;
  }
  TANDEM_ASSIGN(const Store::Bytes bytes, store.get(key, deadline));
  if (bytes.size() != sizeof(ids)) {
    return failf(ErrorCode::kMismatch, "NCCL: rank 0 has told ids of {} bytes, and here they have {}",
                 bytes.size(), sizeof(ids));
  }
  std::memcpy(&ids, bytes.data(), sizeof(ids));
  return ids;
}

/// Of kernels beside a product, which leaves them so many multiprocessors: as many as bring rows in good time
/// (bench/results/h200_x2_hosts.json), or as NCCL's own variable says.
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
  TANDEM_ASSIGN(const Ids ids, agree_on_ids(*api, rank, size, store, deadline));
  const int gpu = device.id().index;
  const Communicators communicators{std::make_shared<NcclCommunicator>(*api, gpu, rank),
                                    std::make_shared<NcclCommunicator>(*api, gpu, rank)};
  const auto never = []() -> Result<void> { return {}; };
  const NcclTransport::Identity self{.rank = rank, .size = size, .most_blocks = most_blocks()};
  TANDEM_TRY(communicators.usual->init(ids[0], size, deadline, never));
  TANDEM_TRY(communicators.beside_product->init(ids[1], size, deadline, never, self.most_blocks));
  TANDEM_ASSIGN(auto stream, device.create_stream(kMostUrgent));
  return std::make_shared<NcclTransport>(*api, communicators, self, gpu, std::move(stream), device);
}

Result<LibraryReport> library_report(const Config& config) {
  TANDEM_ASSIGN(const NcclApi* const api, NcclApi::load(config));
  return api->report;
}

}  // namespace tandem::transport::cuda
