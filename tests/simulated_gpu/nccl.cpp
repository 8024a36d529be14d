// The part of NCCL that tandem calls between hosts, for simulated GPUs of one process: a send is a copy into
// a mailbox, and a receive waits there, as a function of the host in its stream. As with NCCL a wait has no
// deadline, and ends when its communicator is aborted.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {

/// What the ranks of one id share.
struct World {
  std::mutex mutex;
  std::condition_variable has_come;
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> messages;  ///< by sender and receiver
};

struct Worlds {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<World>> by_id;
  std::uint64_t num_ids = 0;
};

Worlds& worlds() {
  static Worlds all;
  return all;
}

struct Message {
  bool is_sent;
  void* data;
  std::size_t num_bytes;
  int peer;
};

/// What a group enqueues; its stream may come to it after the communicator has gone.
struct Exchange {
  std::shared_ptr<World> world;
  std::shared_ptr<bool> is_aborted;  ///< under the world's mutex
  int rank = 0;
  std::vector<Message> messages;
};

void run(void* data) {
  const std::unique_ptr<Exchange> exchange(static_cast<Exchange*>(data));
  World& world = *exchange->world;
  std::unique_lock lock(world.mutex);
  for (const Message& message : exchange->messages) {
    if (!message.is_sent) continue;
    const auto* const begin = static_cast<const char*>(message.data);
    world.messages[{exchange->rank, message.peer}].emplace_back(begin, begin + message.num_bytes);
  }
  world.has_come.notify_all();
  for (const Message& message : exchange->messages) {
    if (message.is_sent) continue;
    auto& queue = world.messages[{message.peer, exchange->rank}];
    world.has_come.wait(lock, [&] { return !queue.empty() || *exchange->is_aborted; });
    if (*exchange->is_aborted) return;
    std::memcpy(message.data, queue.front().data(), std::min(message.num_bytes, queue.front().size()));
    queue.pop_front();
  }
}

}  // namespace

struct ncclComm {
  std::shared_ptr<World> world;
  std::shared_ptr<bool> is_aborted = std::make_shared<bool>(false);
  int rank = 0;
};

namespace {

/// Of this thread's group: NCCL's are of one communicator and one stream here.
struct Group {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Message> messages;
};
thread_local Group group;

ncclResult_t add(const Message& message, ncclComm_t comm, cudaStream_t stream) {
  group.comm = comm;
  group.stream = stream;
  group.messages.push_back(message);
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t) {
  return "an error of the simulated NCCL";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(worlds().mutex);
  *id = {};
  const std::string name = std::to_string(++worlds().num_ids);
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int, ncclUniqueId id, int rank, ncclConfig_t*) {
  const std::lock_guard lock(worlds().mutex);
  std::weak_ptr<World>& known = worlds().by_id[id.internal];
  std::shared_ptr<World> world = known.lock();
  if (!world) known = world = std::make_shared<World>();
  *comm = new ncclComm{.world = std::move(world), .rank = rank};
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* result) {
  *result = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) {
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const std::lock_guard lock(comm->world->mutex);
    *comm->is_aborted = true;
    comm->world->has_come.notify_all();
  }
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void*, void*, std::size_t, ncclDataType_t, ncclComm_t, cudaStream_t) {
  return ncclInvalidUsage;  // ranks of a host gather by themselves
}

ncclResult_t ncclGroupStart() {
  group = {};
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.messages.empty()) return ncclSuccess;
  auto exchange = std::make_unique<Exchange>();
  exchange->world = group.comm->world;
  exchange->is_aborted = group.comm->is_aborted;
  exchange->rank = group.comm->rank;
  exchange->messages = std::move(group.messages);
  return cudaLaunchHostFunc(group.stream, &run, exchange.release()) == cudaSuccess ? ncclSuccess
                                                                                   : ncclUnhandledCudaError;
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add({true, const_cast<void*>(data), count, peer}, comm, stream);
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add({false, data, count, peer}, comm, stream);
}

}  // extern "C"
