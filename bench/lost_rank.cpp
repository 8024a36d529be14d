// How long the other ranks take to learn that one was killed, while they wait for it inside an op: from just
// before the kill to the return of Stream::synchronize() with kPeerLost.
//   bench_lost_rank [RANKS [ROUNDS]]   prints one JSON row, times in microseconds

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <tandem/tandem.hpp>
#include <thread>
#include <vector>

#include "harness/stopwatch.hpp"

namespace {

using tandem::Result;
using tandem::harness::now_us;

constexpr int kLost = 1;

Result<void> publish(tandem::Store& store, const std::string& key, double value) {
  return store.set(key, std::as_bytes(std::span(&value, 1)));
}

Result<double> read(tandem::Store& store, const std::string& key) {
  const auto bytes = store.get(key, tandem::Deadline::after(std::chrono::seconds(30)));
  if (!bytes) return tl::unexpected(bytes.error());
  double value = 0;
  std::memcpy(&value, bytes->data(), sizeof(value));
  return value;
}

/// Everybody runs one op; then the others run one that the lost rank never issues.
Result<void> run_rank(const tandem::RankContext& context) {
  const auto config = tandem::Config::from_environment();
  if (!config) return tl::unexpected(config.error());
  auto device = tandem::open_device({tandem::DeviceKind::kCpu, 0}, *config);
  if (!device) return tl::unexpected(device.error());
  auto group = tandem::Group::create({context.rank, context.size, "world", context.store, *config});
  if (!group) return tl::unexpected(group.error());
  auto stream = (*device)->create_stream();
  if (!stream) return tl::unexpected(stream.error());
  const auto memory = tandem::symm::workspace(**group, **device, 4096);
  if (!memory) return tl::unexpected(memory.error());
  const auto meet = [&]() -> Result<void> {
    if (const auto queued = (*memory)->barrier(**stream, tandem::symm::kFirstUserChannel); !queued)
      return queued;
    return (*stream)->synchronize();
  };
  if (const auto met = meet(); !met) return met;
  const std::string rank = std::to_string(context.rank);
  if (const auto told = publish(*context.store, "ready/" + rank, 1); !told) return told;
  if (context.rank == kLost) std::this_thread::sleep_for(std::chrono::minutes(1));
  const auto lost = meet();
  const double when = now_us();
  const bool is_right = !lost && lost.error().code() == tandem::ErrorCode::kPeerLost;
  return publish(*context.store, "when/" + rank, is_right ? when : -1);
}

/// Microseconds of the slowest of the others.
Result<double> kill_once(int ranks) {
  tandem::LaunchOptions options;
  options.ranks = ranks;
  auto job = tandem::Job::start(options);
  if (!job) return tl::unexpected(job.error());
  for (int r = 0; r < ranks; ++r) {
    if (const auto ready = read((*job)->store(), "ready/" + std::to_string(r)); !ready) return ready;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // all wait by now
  const double start = now_us();
  ::kill((*job)->pid(kLost), SIGKILL);
  double slowest = 0;
  for (int r = 0; r < ranks; ++r) {
    if (r == kLost) continue;
    const auto when = read((*job)->store(), "when/" + std::to_string(r));
    if (!when) return when;
    if (*when < 0) return tandem::fail(tandem::ErrorCode::kInternal, "a rank did not get kPeerLost");
    slowest = std::max(slowest, *when - start);
  }
  return slowest;
}

std::string machine() {
  const auto device = tandem::open_device({tandem::DeviceKind::kCpu, 0}, {});
  return device ? (*device)->description() : device.error().to_string();
}

int measure(int ranks, int rounds) {
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const auto us = kill_once(ranks);
    if (!us) {
      std::fprintf(stderr, "bench_lost_rank: %s\n", us.error().to_string().c_str());
      return 1;
    }
    times.push_back(*us);
  }
  std::sort(times.begin(), times.end());
  const nlohmann::json row{
      {"what", "killed rank to kPeerLost on the slowest other rank, in a barrier"},
      {"world", ranks},
      {"rounds", rounds},
      {"machine", machine()},
      {"commit", TANDEM_COMMIT},
      {"median_us", tandem::harness::median(times)},
      {"max_us", times.back()},
      {"command", "bench_lost_rank " + std::to_string(ranks) + " " + std::to_string(rounds)}};
  std::printf("%s\n", row.dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto context = tandem::join_job(argc, argv);
  if (!context) {
    std::fprintf(stderr, "bench_lost_rank: %s\n", context.error().to_string().c_str());
    return 2;
  }
  if (*context) {
    const auto ran = run_rank(**context);
    if (ran) return 0;
    tandem::report_failure(**context, ran.error());
    return 1;
  }
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 4;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 20;
  if (ranks < 2 || rounds < 1) {
    std::fprintf(stderr, "bench_lost_rank [RANKS >= 2 [ROUNDS >= 1]]\n");
    return 2;
  }
  return measure(ranks, rounds);
}
