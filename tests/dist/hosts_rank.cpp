/// A rank of a job that mpirun has started, for hosts_test.py:
///
///   hosts_rank check                      every problem by every algorithm, against f64
///   hosts_rank loop SECONDS [KILLED]      gathers until one fails; rank KILLED kills itself
///   hosts_rank time M N K ITERATIONS      medians of serial and pipelined, of both ops, as JSON
///
/// Prints one line a rank. Exits 1 for wrong results, 3 for an error of the group.

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <tandem/transport/mpi.hpp>

#include "conformance/across_hosts.hpp"

namespace tandem::test {
namespace {

struct Rank {
  MpiWorld world;
  std::unique_ptr<Device> device;
  std::unique_ptr<Group> group;
  std::unique_ptr<Stream> stream;
};

Rank open_rank() {
  const Config config = harness::take(Config::from_environment());
  Rank rank;
  rank.world = harness::take(open_mpi(config));
  rank.device = harness::take(open_device({DeviceKind::kCpu, 0}, config));
  rank.group = harness::take(Group::create({.rank = rank.world.rank,
                                            .size = rank.world.size,
                                            .name = "world",
                                            .store = rank.world.store,
                                            .config = config,
                                            .transport = rank.world.transport}));
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
  }
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

/// Both algorithms take turns; a round counts from when all ranks are there to when this rank is done.
int time(Rank& rank, std::int64_t m, std::int64_t n, std::int64_t k, int iterations) {
  std::string text;
  for (const harness::Op op : {harness::Op::kAllGatherMatmul, harness::Op::kMatmulReduceScatter}) {
    const harness::Problem problem{.op = op, .a = {m, k}, .n = {n}, .dim = 0, .ranks = rank.group->size()};
    RankRunAcrossHosts run(problem, *rank.group, *rank.device, *rank.stream);
    std::vector<double> ms[2];
    for (int i = -1; i < iterations; ++i) {  // the first round makes the memory
      for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined}) {
        harness::take(rank.group->all_gather({}, "the begin"));
        const auto begin = std::chrono::steady_clock::now();
        run.run_only(algorithm);
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
        if (i >= 0) ms[algorithm == Algorithm::kPipelined ? 1 : 0].push_back(took.count());
      }
    }
    text += fmt::format(
        R"({}{{"op": "{}", "m": {}, "n": {}, "k": {}, "serial_ms": {:.2f}, "pipelined_ms": {:.2f}}})",
        text.empty() ? "" : ", ", to_string(op), m, n, k, median(ms[0]), median(ms[1]));
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
