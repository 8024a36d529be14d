#include "tandem_c.h"

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tandem/bootstrap/local_store.hpp>
#include <tandem/cuda/native_stream.hpp>
#include <tandem/tandem.hpp>

using tandem::Result;

struct tandem_session {
  std::unique_ptr<tandem::Device> device;
  std::unique_ptr<tandem::Group> group;
  std::map<void*, std::unique_ptr<tandem::Stream>> streams;
};

namespace {

thread_local std::string last_error;

const char* complain(const tandem::Error& error) {
  last_error = error.to_string();
  return last_error.c_str();
}

template <class T>
const char* answer(const Result<T>& result) {
  return result ? nullptr : complain(result.error());
}

// Lives as long as the process: the group of rank 0 keeps using its store.
std::unique_ptr<tandem::LocalStoreServer>& server() {
  static std::unique_ptr<tandem::LocalStoreServer> server;
  return server;
}

Result<tandem::Stream*> stream_of(tandem_session& session, void* native) {
  std::unique_ptr<tandem::Stream>& stream = session.streams[native];
  if (!stream) {
    auto adopted = tandem::cuda::adopt_stream(*session.device, static_cast<CUstream_st*>(native));
    if (!adopted) return tl::unexpected(adopted.error());
    stream = *std::move(adopted);
  }
  return stream.get();
}

tandem::TensorView view_of(const tandem_matrix& matrix, const tandem_session& session) {
  return {matrix.data,
          {matrix.rows, matrix.columns},
          {matrix.row_stride, matrix.column_stride},
          tandem::DType::kBF16,
          session.device->id()};
}

tandem::Algorithm algorithm_of(const char* name) {
  return tandem::parse_algorithm(name).value_or(tandem::Algorithm::kAuto);
}

Result<std::unique_ptr<tandem_session>> open(int rank, int world, int gpu, const std::string& address) {
  const auto config = tandem::Config::from_environment();
  if (!config) return tl::unexpected(config.error());
  std::shared_ptr<tandem::Store> store;
  if (rank == 0 && server()) {
    store = server()->local();
  } else {
    const std::size_t space = address.find(' ');
    auto opened = tandem::open_local_store({address.substr(0, space), address.substr(space + 1)},
                                           tandem::Deadline::after(std::chrono::seconds(30)));
    if (!opened) return tl::unexpected(opened.error());
    store = *std::move(opened);
  }
  auto session = std::make_unique<tandem_session>();
  auto device = tandem::open_device({tandem::DeviceKind::kCuda, gpu}, *config);
  if (!device) return tl::unexpected(device.error());
  session->device = *std::move(device);
  auto group = tandem::Group::create({.rank = rank,
                                      .size = world,
                                      .name = "compare",
                                      .store = store,
                                      .config = *config,
                                      .device = session->device->description()});
  if (!group) return tl::unexpected(group.error());
  session->group = *std::move(group);
  return session;
}

}  // namespace

const char* tandem_serve(int world, char* address, int64_t capacity) {
  auto made = tandem::LocalStoreServer::create();
  if (!made) return complain(made.error());
  server() = *std::move(made);
  const auto where = server()->listen(world - 1);
  if (!where) return complain(where.error());
  const std::string text = where->path + " " + where->token;
  if (static_cast<int64_t>(text.size()) >= capacity) return "the address does not fit";
  std::memcpy(address, text.c_str(), text.size() + 1);
  return nullptr;
}

const char* tandem_open(int rank, int world, int gpu, const char* address, tandem_session** session) {
  auto opened = open(rank, world, gpu, address);
  if (!opened) return complain(opened.error());
  *session = opened->release();
  return nullptr;
}

void tandem_close(tandem_session* session) {
  session->group.reset();
  session->streams.clear();
  delete session;
}

const char* tandem_all_gather_matmul(tandem_session* session, void* stream, tandem_matrix a, tandem_matrix b,
                                     tandem_matrix out, const char* algorithm) {
  const auto on = stream_of(*session, stream);
  if (!on) return complain(on.error());
  const tandem::TensorView right = view_of(b, *session);
  const tandem::TensorView result = view_of(out, *session);
  const tandem::AllGatherMatmulArgs args{.a = view_of(a, *session),
                                         .b = std::span(&right, 1),
                                         .gather_dim = 0,
                                         .gather_size = out.rows,
                                         .out = std::span(&result, 1),
                                         .algorithm = algorithm_of(algorithm)};
  return answer(tandem::fused_all_gather_matmul(args, *session->group, **on));
}

const char* tandem_matmul_reduce_scatter(tandem_session* session, void* stream, tandem_matrix a,
                                         tandem_matrix b, tandem_matrix out, const char* algorithm) {
  const auto on = stream_of(*session, stream);
  if (!on) return complain(on.error());
  const tandem::TensorView left = view_of(a, *session);
  const tandem::TensorView right = view_of(b, *session);
  const tandem::MatmulReduceScatterArgs args{.a = std::span(&left, 1),
                                             .b = std::span(&right, 1),
                                             .scatter_dim = 0,
                                             .out = view_of(out, *session),
                                             .algorithm = algorithm_of(algorithm)};
  return answer(tandem::fused_matmul_reduce_scatter(args, *session->group, **on));
}

const char* tandem_synchronize(tandem_session* session, void* stream) {
  const auto on = stream_of(*session, stream);
  if (!on) return complain(on.error());
  return answer((*on)->synchronize());
}
