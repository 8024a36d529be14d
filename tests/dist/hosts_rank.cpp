/// A rank of a job on several hosts. With Open MPI's mpirun, for hosts_test.py, its ranks are on CPUs. Where
/// torchrun has started it, or its variables say so, they are on GPUs of one machine, and TANDEM_HOST tells
/// them apart:
///
///   hosts_rank check                      every problem by every algorithm, against f64
///   hosts_rank loop SECONDS [KILLED]      gathers until one fails; rank KILLED kills itself
///   hosts_rank time M N K ITERATIONS      medians of all algorithms that run, of every op, as JSON
///
/// Prints one line a rank. Exits 1 for wrong results, 3 for an error of the group.

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <tandem/bootstrap/launched.hpp>
#include <tandem/transport/mpi.hpp>
#include <tandem/transport/nccl.hpp>
#include <thread>

#include "conformance/all_reduces_across_hosts.hpp"

namespace tandem::test {
namespace {

struct Rank {
  std::shared_ptr<Store> store;
  std::unique_ptr<Device> device;
  std::shared_ptr<Transport> transport;
  std::unique_ptr<Group> group;
  std::unique_ptr<Stream> stream;
};

Rank open_rank() {
  const Config config = harness::take(Config::from_environment());
  Rank rank;
  GroupOptions options;
  options.config = config;
  const auto launched = harness::take(launched_rank());
  if (launched && launched->launcher == "torchrun") {
    const RankContext context =
        harness::take(join_launched(*launched, {.timeout = config.rendezvous_timeout}));
    options.rank = context.rank;
    options.size = context.size;
    rank.store = context.store;
    rank.device = harness::take(open_device({DeviceKind::kCuda, context.local_rank}, config));
    rank.transport = harness::take(open_nccl(context.rank, context.size, *context.store, *rank.device));
  } else {
    const MpiWorld world = harness::take(open_mpi(config));
    options.rank = world.rank;
    options.size = world.size;
    rank.store = world.store;
    rank.device = harness::take(open_device({DeviceKind::kCpu, 0}, config));
    rank.transport = world.transport;
  }
  options.store = rank.store;
  options.transport = rank.transport;
  rank.group = harness::take(Group::create(options));
  rank.stream = harness::take(rank.device->create_stream());
  return rank;
}

int check(Rank& rank) {
  Complaints complaints;
  int count = 0;
  for (const harness::Problem& problem : problems_across_hosts(rank.group->size())) {
    RankRunAcrossHosts run(problem, *rank.group, *rank.device, *rank.stream);
    for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined}) {
      run.run(algorithm, complaints);
      ++count;
    }
    if (rank.device->id().kind == DeviceKind::kCuda) continue;
    run.run_native(complaints);
    ++count;
  }
  if (rank.device->id().kind == DeviceKind::kCuda) {
    for (const harness::Problem& problem : gathers_of_many_rows(rank.group->size())) {
      RankRunAcrossHosts run(problem, *rank.group, *rank.device, *rank.stream);
      for (int i = 0; i < 3; ++i) run.run_native(complaints);
      count += 3;
    }
  }
  RankContextOfTest context{*rank.group, *rank.device, *rank.stream};
  check_bits_of_chunks(context, complaints);
  ++count;
  harness::take(rank.group->all_gather({}, "the end"));
  fmt::print("rank {} of {} on host {} of {}: {} cases {}\n", rank.group->rank(), rank.group->size(),
             rank.group->host(), rank.group->num_hosts(), count,
             complaints.text().empty() ? "right" : "WRONG: " + complaints.text());
  return complaints.text().empty() ? 0 : 1;
}

int loop(Rank& rank, double seconds, int killed) {
  const harness::Problem problem{.op = harness::Op::kAllGatherMatmul,
                                 .a = {64L * rank.group->size(), 256},
                                 .n = {16},
                                 .dim = 0,
                                 .ranks = rank.group->size()};
  RankRunAcrossHosts run(problem, *rank.group, *rank.device, *rank.stream);
  Complaints complaints;
  run.run(Algorithm::kPipelined, complaints);
  fmt::print("rank {} runs\n", rank.group->rank());
  std::fflush(stdout);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; std::chrono::steady_clock::now() - begin < std::chrono::duration<double>(seconds); ++i) {
    if (i == 5 && rank.group->rank() == killed) ::raise(SIGKILL);
    run.run(Algorithm::kPipelined, complaints);
  }
  fmt::print("rank {}: all right\n", rank.group->rank());
  return 0;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

using Clock = std::chrono::steady_clock;

/// Every rank's time, in rank order.
std::vector<Clock::time_point> tell(Rank& rank, Clock::time_point mine) {
  const auto all = harness::take(rank.group->all_gather(std::as_bytes(std::span(&mine, 1)), "times"));
  std::vector<Clock::time_point> times(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) std::memcpy(&times[i], all[i].data(), sizeof(times[i]));
  return times;
}

/// From a time at which all ranks begin, to when the last is done. The hosts are one machine, with one clock.
double ms_of(Rank& rank, const std::function<void()>& call) {
  constexpr std::chrono::milliseconds kToMeet(300);
  const std::vector<Clock::time_point> before = tell(rank, Clock::now());
  const Clock::time_point begin = *std::max_element(before.begin(), before.end()) + kToMeet;
  if (Clock::now() > begin) harness::take(Result<void>(fail(ErrorCode::kTimeout, "the ranks do not meet")));
  std::this_thread::sleep_until(begin);
  call();
  const std::vector<Clock::time_point> after = tell(rank, Clock::now());
  return std::chrono::duration<double, std::milli>(*std::max_element(after.begin(), after.end()) - begin)
      .count();
}

/// The algorithms take turns.
int time(Rank& rank, std::int64_t m, std::int64_t n, std::int64_t k, int iterations) {
  std::string text;
  for (const harness::Op op : harness::kOps) {
    const harness::Problem problem{.op = op, .a = {m, k}, .n = {n}, .dim = 0, .ranks = rank.group->size()};
    RankRunAcrossHosts run(problem, *rank.group, *rank.device, *rank.stream);
    std::map<Algorithm, std::vector<double>> ms = {{Algorithm::kSerial, {}}, {Algorithm::kPipelined, {}}};
    if (is_native_across_hosts(problem, rank.group->num_hosts())) ms[Algorithm::kNative];
    for (int i = -1; i < iterations; ++i) {  // the first round makes the memory
      for (auto& [algorithm, all] : ms) {
        const double took = ms_of(rank, [&] { run.run_only(algorithm); });
        if (i >= 0) all.push_back(took);
      }
    }
    text += fmt::format(R"({}{{"op": "{}", "m": {}, "n": {}, "k": {})", text.empty() ? "" : ", ",
                        to_string(op), m, n, k);
    for (const auto& [algorithm, all] : ms)
      text += fmt::format(R"(, "{}_ms": {:.2f})", to_string(algorithm), median(all));
    text += "}";
  }
  if (rank.group->rank() == 0) fmt::print("[{}]\n", text);
  return 0;
}

int run(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  Rank rank = open_rank();
  if (mode == "check") return check(rank);
  if (mode == "loop") return loop(rank, std::stod(argv[2]), argc > 3 ? std::stoi(argv[3]) : -1);
  if (mode == "time" && argc == 6)
    return time(rank, std::stol(argv[2]), std::stol(argv[3]), std::stol(argv[4]), std::stoi(argv[5]));
  fmt::print(stderr, "hosts_rank: mode '{}'\n", mode);
  return 2;
}

}  // namespace
}  // namespace tandem::test

int main(int argc, char** argv) {
  try {
    return tandem::test::run(argc, argv);
  } catch (const tandem::harness::Failure& failure) {
    fmt::print(stderr, "hosts_rank: {}\n", failure.error().to_string());
    return 3;
  }
}
