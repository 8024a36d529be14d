// Symmetric memory between processes: mappings and signals on every backend; leaks, deaths, and peers that
// send the wrong thing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>

#include "support/bytes_only_store.hpp"
#include "support/leak_oracle.hpp"
#include "support/process_ranks.hpp"
#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

using std::chrono::milliseconds;

Result<void> with_group(RankProcess& self, const SymmProgram& program, const Placement& placement = {}) {
  const auto group = self.create_group();
  if (!group) return tl::unexpected(group.error());
  return run_as_rank(**group, program, placement);
}

constexpr Placement kOnOneGpu{DeviceKind::kCuda, false};
constexpr Placement kOnGpusOfTheirOwn{DeviceKind::kCuda, true};

/// A placement as the argument of a rank function, and back.
std::string argument_of(const Placement& placement) {
  if (placement.kind == DeviceKind::kCpu) return "cpu";
  return placement.one_gpu_each ? "one GPU each" : "one GPU";
}
Placement placement_of(std::string_view argument) {
  if (argument == "cpu") return {};
  return argument == "one GPU" ? kOnOneGpu : kOnGpusOfTheirOwn;
}

// ---- data and signals ----

/// Fills the next rank's memory and signals; the next rank checks and hands it back.
Result<void> pass_words_round(SymmRank& rank) {
  constexpr std::int64_t kCount = 3000;
  const Tensor tensor = rank.empty({kCount}, DType::kU32);
  const auto handle = rank.meet(tensor);
  const int next = (rank.rank() + 1) % rank.size();
  const int previous = (rank.rank() + rank.size() - 1) % rank.size();
  std::mt19937 random(static_cast<unsigned>(rank.rank()));
  for (std::uint32_t round = 1; round <= 30; ++round) {
    const auto theirs = handle->get_buffer(next, {kCount}, DType::kU32).value();
    if (auto done = rank.stream->sleep(std::chrono::microseconds(random() % 500)); !done) return done;
    if (auto done =
            rank.stream->memset32(theirs, 0, 100 * round + static_cast<unsigned>(rank.rank()), kCount);
        !done) {
      return done;
    }
    if (auto done = handle->barrier(*rank.stream); !done) return done;
    if (auto done = rank.finish(); !done) return done;
    const std::vector<std::uint32_t> expected(kCount, 100 * round + static_cast<unsigned>(previous));
    EXPECT_EQ(rank.read<std::uint32_t>(tensor.view()), expected);
    if (auto done = handle->barrier(*rank.stream, 1); !done) return done;
  }
  if (auto done = rank.finish(); !done) return done;
  const Tensor pause = rank.empty({1});
  (void)rank.meet(pause);
  expect_pad_zero(*handle);
  return {};
}

const RankFunction kRing("symm_ring", [](RankProcess& self) -> Result<void> {
  return with_group(self, pass_words_round, placement_of(self.arguments.at(0)));
});

// Processes on one GPU have turns on it: few ranks, or the kernels that wait use up most of the time.
class SymmProcesses : public ::testing::TestWithParam<RankCase> {};
INSTANTIATE_TEST_SUITE_P(World, SymmProcesses,
                         ::testing::Values(RankCase{{}, 1}, RankCase{{}, 2}, RankCase{{}, 3}, RankCase{{}, 4},
                                           RankCase{{}, 8}, RankCase{kOnOneGpu, 1}, RankCase{kOnOneGpu, 2},
                                           RankCase{kOnOneGpu, 4}, RankCase{kOnGpusOfTheirOwn, 2},
                                           RankCase{kOnGpusOfTheirOwn, 4}, RankCase{kOnGpusOfTheirOwn, 8}),
                         case_name);

TEST_P(SymmProcesses, RingOfWrites) {
  if (const std::string reason = why_not(GetParam()); !reason.empty()) GTEST_SKIP() << reason;
  const LeakOracle oracle;
  const JobOutcome outcome =
      run_process_ranks(GetParam().size, "symm_ring", {argument_of(GetParam().placement)});
  EXPECT_TRUE(outcome.status()) << describe(outcome);
  EXPECT_EQ(oracle.leaks(), "");
}

// ---- leaks ----

struct Holdings {
  std::int64_t num_files = 0;
  std::int64_t num_mappings = 0;
  std::int64_t resident_bytes = 0;
};

Holdings holdings() {
  Holdings now;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++now.num_files;
  std::ifstream maps("/proc/self/maps");
  // Shared memory, and the inaccessible pages around it.
  for (std::string line; std::getline(maps, line);) {
    const bool counts = line.find("memfd") != std::string::npos || line.find("---p") != std::string::npos;
    now.num_mappings += counts ? 1 : 0;
  }
  std::int64_t all_pages = 0;
  std::int64_t resident_pages = 0;
  std::ifstream("/proc/self/statm") >> all_pages >> resident_pages;
  now.resident_bytes = resident_pages * ::sysconf(_SC_PAGESIZE);
  return now;
}

const RankFunction kCycles("symm_cycles", [](RankProcess& self) -> Result<void> {
  return with_group(self, [&](SymmRank& rank) -> Result<void> {
    const int num_cycles = std::stoi(self.arguments.at(0));
    const Tensor ordinary = Tensor::host({16}, DType::kF32);
    constexpr int kWarmUp = 1000;  // until the heap has its size
    Holdings after_warm_up;
    for (int i = 0; i < num_cycles; ++i) {
      {
        const Tensor tensor = rank.empty({64});
        const auto handle = rank.meet(tensor);
        if (i % 50 == 0) {
          if (auto done = handle->barrier(*rank.stream).and_then([&] { return rank.finish(); }); !done)
            return done;
          // Failures too: nothing of them may stay.
          EXPECT_FALSE(symm::rendezvous(ordinary, rank.group));
          EXPECT_FALSE(symm::empty({std::int64_t{1} << 50}, DType::kU8, *rank.device));
        }
      }
      if (i == kWarmUp) after_warm_up = holdings();
    }
    const Holdings at_end = holdings();
    EXPECT_EQ(at_end.num_files, after_warm_up.num_files);
    EXPECT_EQ(at_end.num_mappings, after_warm_up.num_mappings);
    // What a cycle would leave, be it 32 bytes, is more after nine thousand of them.
    EXPECT_LT(at_end.resident_bytes, after_warm_up.resident_bytes + 256 * 1024);
    return {};
  });
});

TEST(SymmProcessesLeaks, TenThousandCycles) {
  RankOptions options;
  options.deadline = milliseconds(240'000);  // where other work takes the cores
  const JobOutcome outcome = run_process_ranks(2, "symm_cycles", {"10000"}, options);
  EXPECT_TRUE(outcome.status()) << describe(outcome);
}

// ---- ranks that end or stop ----

const RankFunction kBarriers("symm_barriers", [](RankProcess& self) -> Result<void> {
  return with_group(self, [&](SymmRank& rank) -> Result<void> {
    const Tensor tensor = rank.empty({64});
    const auto handle = rank.meet(tensor);
    self.publish("ready", "yes");
    for (;;) {
      if (auto done = handle->barrier(*rank.stream); !done) return done;
      if (auto done = rank.finish(); !done) return done;
    }
  });
});

void expect_survivors(const JobOutcome& outcome, int victim, ErrorCode code, const std::string& piece) {
  for (const RankOutcome& rank : outcome.ranks) {
    if (rank.rank == victim) continue;
    ASSERT_TRUE(rank.error) << "rank " << rank.rank << "\n" << describe(outcome);
    EXPECT_EQ(to_string(rank.error->code()), to_string(code)) << rank.error->text();
    EXPECT_NE(rank.error->text().find(piece), std::string::npos) << rank.error->text();
  }
}

TEST(SymmProcessesFaults, KilledRankIsNamedByAllOthers) {
  for (const int world : {2, 4}) {
    auto job = start_process_ranks(world, "symm_barriers");
    for (int r = 0; r < world; ++r) ASSERT_TRUE(job.published(r, "ready"));
    const int victim = world - 1;
    job.kill(victim);
    // By the deadline it would be kTimeout.
    expect_survivors(job.wait(), victim, ErrorCode::kPeerLost, "rank " + std::to_string(victim) + " (pid");
  }
}

TEST(SymmProcessesFaults, StoppedRankIsNamedByAllOthers) {
  RankOptions options;
  options.config.op_timeout = milliseconds(1000);
  auto job = start_process_ranks(3, "symm_barriers", {}, options);
  for (int r = 0; r < 3; ++r) ASSERT_TRUE(job.published(r, "ready"));
  job.stop(1);
  std::this_thread::sleep_for(milliseconds(3000));
  job.resume(1);
  expect_survivors(job.wait(), 1, ErrorCode::kTimeout, "rank 1 (pid");
}

const RankFunction kDieInRendezvous("symm_rendezvous", [](RankProcess& self) -> Result<void> {
  return with_group(self, [](SymmRank& rank) -> Result<void> {
    for (int i = 0; i < 5; ++i) {
      const Tensor tensor = rank.empty({64});
      const auto handle = symm::rendezvous(tensor, rank.group);
      if (!handle) return tl::unexpected(handle.error());
    }
    return {};
  });
});

TEST(SymmProcessesFaults, DeathInARendezvous) {
  const LeakOracle oracle;
  RankOptions options;
  options.config.fault = "rendezvous:2:3:die";
  const JobOutcome outcome = run_process_ranks(3, "symm_rendezvous", {}, options);
  expect_survivors(outcome, 2, ErrorCode::kPeerLost, "rank 2 (pid");
  EXPECT_EQ(oracle.leaks(), "");
}

// ---- a peer that sends something else than its memory ----

/// Hands on everything, but swaps the files that this rank publishes.
class MaliciousStore final : public test::BytesOnly {
 public:
  MaliciousStore(std::shared_ptr<Store> store, std::string kind)
      : BytesOnly(std::move(store)), kind_(std::move(kind)) {}
  bool carries_files() const override { return true; }
  Result<UniqueFd> get_file(std::string_view key, Deadline deadline) override {
    return store_->get_file(key, deadline);
  }
  Result<void> set_file(std::string_view key, int fd) override {
    if (key.find("symm") == std::string_view::npos) return store_->set_file(key, fd);
    const UniqueFd other = make_other(fd);
    return store_->set_file(key, other.get());
  }

 private:
  UniqueFd make_other(int fd) const {
    if (kind_ == "directory") return UniqueFd(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (kind_ == "pipe") {
      int ends[2] = {-1, -1};
      EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
      ::close(ends[1]);
      return UniqueFd(ends[0]);
    }
    UniqueFd memory(::memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const off_t size = kind_ == "small" ? 4096 : ::lseek(fd, 0, SEEK_END);
    EXPECT_EQ(::ftruncate(memory.get(), size), 0);
    if (kind_ == "sealed") {
      EXPECT_EQ(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    }
    return memory;
  }
  std::string kind_;
};

const RankFunction kMalicious("symm_malicious", [](RankProcess& self) -> Result<void> {
  if (self.rank() == 1) {
    self.context.store = std::make_shared<MaliciousStore>(self.context.store, self.arguments.at(0));
  }
  return with_group(self, [](SymmRank& rank) -> Result<void> {
    const Tensor tensor = rank.empty({64});
    const auto handle = symm::rendezvous(tensor, rank.group);
    if (!handle) return tl::unexpected(handle.error());
    return {};
  });
});

TEST(SymmProcessesFaults, WrongFilesAreRefusedByAllRanks) {
  const std::pair<const char*, const char*> cases[] = {{"pipe", "the file is a pipe"},
                                                       {"directory", "the file is a directory"},
                                                       {"small", "the file has 4096 bytes, need 8192"},
                                                       {"unsealed", "seals are 0x0"},
                                                       {"sealed", "other memory"}};
  for (const auto& [kind, reason] : cases) {
    const JobOutcome outcome = run_process_ranks(3, "symm_malicious", {kind});
    expect_survivors(outcome, -1, ErrorCode::kInvalidArgument, "the data of rank 1 (pid");
    expect_survivors(outcome, -1, ErrorCode::kInvalidArgument, reason);
  }
}

}  // namespace
}  // namespace tandem::testing
