#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <limits>
#include <thread>
#include <vector>

#include "base/format.hpp"
#include "bootstrap/group_control.hpp"
#include "support/no_fallocate.hpp"

namespace tandem::bootstrap {
namespace {

using std::chrono::milliseconds;

Deadline soon() {
  return Deadline::after(milliseconds(5'000));
}

/// The controls of all ranks of one group, in this thread's hands.
std::vector<std::unique_ptr<GroupControl>> make_controls(int size, std::uint64_t first_sequence = 1) {
  const std::vector<ProcessId> processes(static_cast<std::size_t>(size), ProcessId::self());
  auto memory = ControlMemory::create_for_threads({size, 1, first_sequence}, processes);
  EXPECT_TRUE(memory);
  std::vector<std::unique_ptr<GroupControl>> controls;
  for (int r = 0; r < size; ++r) {
    controls.push_back(
        std::make_unique<GroupControl>(*memory, GroupControl::Options{r, std::chrono::microseconds(5)}));
  }
  return controls;
}

/// Calls body(rank) in one thread a rank.
template <class Body>
void in_threads(int size, Body body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) threads.emplace_back([=] { body(r); });
  for (std::thread& thread : threads) thread.join();
}

TEST(ControlMemory, FileSizeLimitIsAnErrorNotASignal) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = 512;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  UniqueFd file;
  const std::vector<ProcessId> processes(2, ProcessId::self());
  const auto refused = ControlMemory::create_for_processes({2, 1, 1}, processes, file);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_NE(refused.error().text().find("512 available by the file size limit (ulimit -f)"),
            std::string::npos)
      << refused.error().text();
}

TEST(Agreement, EqualFingerprintsPassAlsoWhereNumbersWrapAround) {
  for (const std::uint64_t first : {std::uint64_t{1}, std::numeric_limits<std::uint64_t>::max() - 3}) {
    const auto controls = make_controls(3, first);
    in_threads(3, [&](int r) {
      for (int call = 0; call < 12; ++call) {
        GroupControl& control = *controls[static_cast<std::size_t>(r)];
        const auto sequence = control.next_sequence();
        EXPECT_EQ(sequence, first + static_cast<std::uint64_t>(call));
        const auto agreed = control.agree(sequence, Fingerprint::of(fmt::format("call {}", call)), soon());
        EXPECT_TRUE(agreed) << agreed.error().to_string();
      }
    });
  }
}

TEST(Enqueued, WaitsForEveryRankAlsoWhereNumbersWrapAround) {
  const auto controls = make_controls(3, std::numeric_limits<std::uint64_t>::max());
  std::atomic<int> num_noted{0};
  in_threads(3, [&](int r) {
    GroupControl& control = *controls[static_cast<std::size_t>(r)];
    for (int call = 1; call <= 20; ++call) {
      static_cast<void>(control.next_sequence());
      std::this_thread::sleep_for(std::chrono::microseconds(100 * r));
      ++num_noted;
      control.note_enqueued();
      const auto waited = control.wait_enqueued(soon());
      EXPECT_TRUE(waited) << waited.error().to_string();
      EXPECT_GE(num_noted, 3 * call);
    }
  });
}

TEST(Enqueued, NamesTheRankThatHasNotOrHasLeft) {
  for (const bool leaves : {false, true}) {
    const auto controls = make_controls(2);
    static_cast<void>(controls[0]->next_sequence());
    static_cast<void>(controls[1]->next_sequence());
    controls[0]->note_enqueued();
    if (leaves) controls[1]->leave();
    const auto waited = controls[0]->wait_enqueued(Deadline::after(milliseconds(20)));
    ASSERT_FALSE(waited);
    EXPECT_EQ(waited.error().code(), leaves ? ErrorCode::kPeerLost : ErrorCode::kTimeout);
    const char* const text = leaves ? "rank 0 waited in enqueue for rank 1" : "for rank 1 in enqueue";
    EXPECT_NE(waited.error().text().find(text), std::string::npos) << waited.error().text();
  }
}

TEST(Agreement, ADifferenceIsTheSameMismatchOnEveryRank) {
  const auto controls = make_controls(4);
  in_threads(4, [&](int r) {
    GroupControl& control = *controls[static_cast<std::size_t>(r)];
    const auto mine = Fingerprint::of(r == 2 ? "mm 8x8" : "mm 8x4");
    const auto agreed = control.agree(control.next_sequence(), mine, soon());
    ASSERT_FALSE(agreed);
    EXPECT_EQ(agreed.error().code(), ErrorCode::kMismatch);
    EXPECT_EQ(agreed.error().text(),
              "ranks disagree about call #1: rank 0 runs #1 'mm 8x4'; rank 1 runs #1 'mm 8x4'; rank 2 runs "
              "#1 'mm 8x8'; "
              "rank 3 runs #1 'mm 8x4'");
    EXPECT_FALSE(control.status());
  });
}

TEST(Agreement, ARankThatIsOneCallAheadIsAMismatchWithBothNumbers) {
  const auto controls = make_controls(2);
  static_cast<void>(controls[1]->next_sequence());  // taken, but its op never ran
  in_threads(2, [&](int r) {
    GroupControl& control = *controls[static_cast<std::size_t>(r)];
    const auto agreed = control.agree(control.next_sequence(), Fingerprint::of("op"), soon());
    ASSERT_FALSE(agreed);
    EXPECT_EQ(agreed.error().code(), ErrorCode::kMismatch) << agreed.error().text();
    EXPECT_NE(agreed.error().text().find("rank 0 runs #1 'op'; rank 1 runs #2 'op'"), std::string::npos)
        << agreed.error().text();
  });
}

TEST(Agreement, ARefusalReachesTheOthersWithItsText) {
  const auto controls = make_controls(3);
  in_threads(3, [&](int r) {
    GroupControl& control = *controls[static_cast<std::size_t>(r)];
    const auto sequence = control.next_sequence();
    if (r == 1) return control.refuse(sequence, Error(ErrorCode::kInvalidArgument, "k is -1"));
    const auto agreed = control.agree(sequence, Fingerprint::of("op"), soon());
    ASSERT_FALSE(agreed);
    EXPECT_EQ(agreed.error().code(), ErrorCode::kMismatch);
    EXPECT_NE(agreed.error().text().find("rank 1 refused #1: InvalidArgument: k is -1"), std::string::npos)
        << agreed.error().text();
  });
}

TEST(Agreement, WhenAllRefuseTheGroupGoesOn) {
  const auto controls = make_controls(3);
  in_threads(3, [&](int r) {
    GroupControl& control = *controls[static_cast<std::size_t>(r)];
    for (int i = 0; i < 9; ++i)
      control.refuse(control.next_sequence(), Error(ErrorCode::kInvalidArgument, "no"));
    const auto agreed = control.agree(control.next_sequence(), Fingerprint::of("op"), soon());
    EXPECT_TRUE(agreed) << agreed.error().to_string();
  });
}

// ---- announce: agreement without waiting ----

Fingerprint numbered(int call) {
  return Fingerprint::of(fmt::format("call {}", call));
}

TEST(Announce, ReturnsBeforeTheOthersComeAndIsComparedLater) {
  const auto controls = make_controls(2);
  for (int call = 0; call < 10; ++call) {
    const auto announced = controls[0]->announce(controls[0]->next_sequence(), numbered(call), soon());
    EXPECT_TRUE(announced) << announced.error().to_string();
  }
  EXPECT_TRUE(controls[0]->compare_announced()) << "nobody to compare with";
  EXPECT_EQ(controls[0]->memory()->rank(0).agreed, 0U);
  for (int call = 0; call < 10; ++call) {
    EXPECT_TRUE(controls[1]->announce(controls[1]->next_sequence(), numbered(call), soon()));
  }
  EXPECT_EQ(controls[1]->memory()->rank(1).agreed, 10U);
  EXPECT_EQ(controls[0]->memory()->rank(0).agreed, 0U) << "rank 0 has called nothing since";
  EXPECT_TRUE(controls[0]->compare_announced());
  EXPECT_EQ(controls[0]->memory()->rank(0).agreed, 10U);
  EXPECT_TRUE(controls[0]->wait_agreed(10, soon()));
}

TEST(Announce, ADifferenceIsFoundByWhoeverComesLast) {
  const auto controls = make_controls(3);
  for (int r = 0; r < 3; ++r) {
    GroupControl& control = *controls[static_cast<std::size_t>(r)];
    EXPECT_TRUE(control.announce(control.next_sequence(), numbered(1), soon()));
    const auto second = control.announce(control.next_sequence(), numbered(r == 1 ? 3 : 2), soon());
    EXPECT_EQ(second.has_value(), r < 2);
  }
  for (const auto& control : controls) {
    const auto status = control->compare_announced();
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code(), ErrorCode::kMismatch);
    EXPECT_EQ(status.error().text(),
              "ranks disagree about call #2: rank 0 runs #2 'call 2'; rank 1 runs #2 'call 3'; rank 2 runs "
              "#2 'call 2'");
    EXPECT_FALSE(control->announce(control->next_sequence(), numbered(4), soon()));
  }
}

TEST(Announce, ASkippedCallIsAMismatchWithBothNumbers) {
  const auto controls = make_controls(2);
  static_cast<void>(controls[1]->next_sequence());  // taken, but its op never ran
  EXPECT_TRUE(controls[0]->announce(controls[0]->next_sequence(), numbered(1), soon()));
  static_cast<void>(controls[1]->announce(controls[1]->next_sequence(), numbered(1), soon()));
  const auto status = controls[0]->compare_announced();
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().text().find("rank 0 runs #1 'call 1'; rank 1 runs #2 'call 1'"), std::string::npos)
      << status.error().text();
}

TEST(Announce, ARefusalReachesWhoeverHasAnnounced) {
  const auto controls = make_controls(3);
  in_threads(3, [&](int r) {
    GroupControl& control = *controls[static_cast<std::size_t>(r)];
    // A late rank may hear of the second call's refusal in its first call already.
    static_cast<void>(control.announce(control.next_sequence(), numbered(1), soon()));
    const auto sequence = control.next_sequence();
    if (r == 1) return control.refuse(sequence, Error(ErrorCode::kInvalidArgument, "k is -1"));
    static_cast<void>(control.announce(sequence, numbered(2), soon()));
    const auto agreed = control.wait_agreed(sequence, soon());
    ASSERT_FALSE(agreed);
    EXPECT_EQ(agreed.error().code(), ErrorCode::kMismatch);
    EXPECT_NE(agreed.error().text().find("rank 1 refused #2: InvalidArgument: k is -1"), std::string::npos)
        << agreed.error().text();
  });
}

TEST(Announce, HostsRunAheadByAsManyCallsAsThereAreSlots) {
  const auto controls = make_controls(2);
  GroupControl& ahead = *controls[0];
  for (std::uint64_t call = 1; call <= kNumAgreementSlots; ++call) {
    EXPECT_TRUE(ahead.announce(ahead.next_sequence(), Fingerprint::of("op"), soon()));
  }
  const auto announced =
      ahead.announce(ahead.next_sequence(), Fingerprint::of("op"), Deadline::after(milliseconds(30)));
  ASSERT_FALSE(announced);
  EXPECT_EQ(announced.error().code(), ErrorCode::kTimeout);
  EXPECT_NE(announced.error().text().find("in agree"), std::string::npos) << announced.error().text();
}

/// `num_calls` calls by every rank, each with pauses of its own; chosen by `uses_agree(call)` they wait or
/// run ahead.
template <class UsesAgree>
void run_skewed_calls(std::uint64_t first_sequence, int num_calls, UsesAgree uses_agree) {
  constexpr int kRanks = 4;
  const auto controls = make_controls(kRanks, first_sequence);
  in_threads(kRanks, [&](int r) {
    GroupControl& control = *controls[static_cast<std::size_t>(r)];
    for (int call = 0; call < num_calls; ++call) {
      if ((call / 16) % kRanks == r) std::this_thread::sleep_for(milliseconds(call % 16 == 0 ? 10 : 0));
      const auto sequence = control.next_sequence();
      const auto agreed = uses_agree(call) ? control.agree(sequence, numbered(call), soon())
                                           : control.announce(sequence, numbered(call), soon());
      ASSERT_TRUE(agreed) << agreed.error().to_string();
    }
    const auto agreed =
        control.wait_agreed(first_sequence + static_cast<std::uint64_t>(num_calls) - 1, soon());
    EXPECT_TRUE(agreed) << agreed.error().to_string();
  });
}

TEST(Announce, TwoHundredCallsWithSkewAlsoWhereNumbersWrapAround) {
  for (const std::uint64_t first : {std::uint64_t{1}, std::numeric_limits<std::uint64_t>::max() - 99}) {
    run_skewed_calls(first, 200, [](int) { return false; });
  }
}

TEST(Announce, MixesWithAgree) {
  run_skewed_calls(1, 200, [](int call) { return call % 7 == 3 || call % 50 == 0; });
}

TEST(Announce, OneRankMayWaitForWhatAnotherAnnounces) {
  const auto controls = make_controls(2);
  in_threads(2, [&](int r) {
    GroupControl& control = *controls[static_cast<std::size_t>(r)];
    for (int call = 0; call < 300; ++call) {
      const auto sequence = control.next_sequence();
      const auto agreed = (call + r) % 2 == 0 ? control.agree(sequence, numbered(call), soon())
                                              : control.announce(sequence, numbered(call), soon());
      ASSERT_TRUE(agreed) << agreed.error().to_string();
    }
  });
}

TEST(Wait, AWaitOfADeviceIsReportedLikeOneOfTheHost) {
  const auto controls = make_controls(2);
  const std::atomic<std::uint32_t> word{7};
  const WaitInfo info{.what = "barrier", .peer = 1, .channel = 3, .expected = 1, .word = &word};
  controls[0]->report_timeout(info, milliseconds(250));
  const auto status = controls[1]->status();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kTimeout);
  EXPECT_EQ(status.error().text().find(
                "rank 0 waited 250 ms for rank 1 in barrier on channel 3: expected 1, seen 7; rank 1 (pid"),
            0U)
      << status.error().text();
}

// Words that streams write: no doorbell rings, and a chunk stands for the channel.
TEST(Wait, WithoutADoorbellItNaps) {
  const auto controls = make_controls(2);
  std::atomic<std::uint32_t> word{0};
  const WaitInfo info{.what = "gather", .peer = 1, .expected = 5, .word = &word, .chunk = 3};
  int naps = 0;
  const auto nap = [&] { word = static_cast<std::uint32_t>(++naps); };
  const auto came = controls[0]->wait(
      info, soon(), [&] { return word >= 5; }, nap);
  EXPECT_TRUE(came) << came.error().to_string();
  EXPECT_EQ(naps, 5);
  const auto late = controls[0]->wait(
      info, Deadline::after(std::chrono::milliseconds(1)), [] { return false; }, nap);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), ErrorCode::kTimeout);
  EXPECT_NE(late.error().text().find("for rank 1 in gather on chunk 3: expected 5, seen "), std::string::npos)
      << late.error().text();
}

TEST(Wait, TheChainGoesThroughWaitsOfDevices) {
  const auto controls = make_controls(3);
  controls[1]->memory()->rank(1).device_waits_for = 2 + 1;
  controls[0]->report_timeout({.what = "barrier", .peer = 1}, milliseconds(250));
  const auto status = controls[0]->status();
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().text().find("; rank 2 (pid"), std::string::npos) << status.error().text();
}

TEST(Wait, ADeviceThatWaitsForALeftRankReportsThat) {
  const auto controls = make_controls(2);
  controls[0]->report_peer_left({.what = "wait_signal", .peer = 1});
  const auto status = controls[1]->status();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kPeerLost);
  EXPECT_NE(status.error().text().find("has left the group"), std::string::npos) << status.error().text();
}

TEST(ControlMemory, AnAttachmentIsMadeOnceAndEndsBeforeTheMapping) {
  struct Attached {
    const ControlMemory* memory;
    bool* ended;
    ~Attached() { *ended = memory->header().magic == ControlHeader::kMagic; }
  };
  bool ended = false;
  int num_made = 0;
  {
    const std::vector<ProcessId> processes(1, ProcessId::self());
    const auto memory = ControlMemory::create_for_threads({1, 1, 1}, processes).value();
    const auto make = [&]() -> Result<ControlMemory::Attachment> {
      ++num_made;
      if (num_made == 1) return fail(ErrorCode::kDriver, "not yet");
      return std::shared_ptr<void>(new Attached{memory.get(), &ended},
                                   [](void* attached) { delete static_cast<Attached*>(attached); });
    };
    EXPECT_FALSE(memory->attachment(make));
    const auto one = memory->attachment(make).value().get();
    EXPECT_EQ(memory->attachment(make).value().get(), one);
    EXPECT_FALSE(ended);
  }
  EXPECT_EQ(num_made, 2);
  EXPECT_TRUE(ended);
}

TEST(Wait, ATimeoutNamesWhoWaitedForWhatAndHowLong) {
  const auto controls = make_controls(2);
  const std::atomic<std::uint32_t> word{0};
  const WaitInfo info{.what = "barrier", .peer = 1, .channel = 3, .expected = 1, .word = &word};
  const auto started = Deadline::Clock::now();
  const auto waited =
      controls[0]->wait(info, Deadline::after(milliseconds(60)), [&] { return word.load() == 1; });
  const auto took = Deadline::Clock::now() - started;
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code(), ErrorCode::kTimeout);
  EXPECT_NE(waited.error().text().find(" for rank 1 in barrier on channel 3: expected 1, seen 0"),
            std::string::npos)
      << waited.error().text();
  EXPECT_GE(took, milliseconds(60));
  EXPECT_EQ(controls[1]->status().error().text(), waited.error().text()) << "the first error is everybody's";
}

TEST(Wait, TheRankAtTheEndOfTheChainIsBlamed) {
  const auto controls = make_controls(3);
  const auto never = [] { return false; };
  const WaitInfo for_two{.what = "wait_signal", .peer = 2};
  const WaitInfo for_one{.what = "wait_signal", .peer = 1};
  std::thread one([&] { EXPECT_FALSE(controls[1]->wait(for_two, soon(), never)); });          // 1 waits for 2
  const auto waited = controls[0]->wait(for_one, Deadline::after(milliseconds(500)), never);  // 0 waits for 1
  one.join();
  ASSERT_FALSE(waited);
  EXPECT_NE(waited.error().text().find("; rank 2 (pid"), std::string::npos) << waited.error().text();
  EXPECT_NE(waited.error().text().find("waits for nobody"), std::string::npos) << waited.error().text();
}

TEST(Wait, WhatAPeerDidBeforeItLeftCounts) {
  const auto controls = make_controls(2);
  const WaitInfo info{.what = "wait_signal", .peer = 1};
  std::atomic<int> word{0};
  word = 1;
  controls[1]->leave();
  EXPECT_TRUE(controls[0]->wait(info, soon(), [&] { return word.load() == 1; }));
  const auto waited = controls[0]->wait(info, soon(), [&] { return word.load() == 2; });
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code(), ErrorCode::kPeerLost) << waited.error().text();
}

TEST(Wait, EndsWhenARankDiesWhileItReportsAnError) {
  const std::vector<ProcessId> processes(3, ProcessId::self());
  const auto memory = ControlMemory::create_for_threads({3, 1, 1}, processes);
  ASSERT_TRUE(memory);
  GroupControl waiting(*memory, {0, std::chrono::microseconds(5)});
  std::thread waiter([&] {
    const WaitInfo info{.what = "wait_signal", .peer = 1};
    const auto result = waiting.wait(info, Deadline::after(std::chrono::seconds(60)), [] { return false; });
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), ErrorCode::kPeerLost);
  });
  while ((*memory)->rank(0).doorbell.sleepers == 0) std::this_thread::sleep_for(milliseconds(1));
  std::this_thread::sleep_for(milliseconds(20));            // now it sleeps
  (*memory)->header().error.state = ErrorRecord::kWriting;  // all that rank 2 did before it was killed
  GroupControl(*memory, {1, std::chrono::microseconds(5)}).report_death(2);
  waiter.join();
}

TEST(Wait, SpinsLessWhereRanksShareCores) {
  EXPECT_GT(spin_duration(2, 2, {}), spin_duration(3, 2, {}));
  EXPECT_EQ(spin_duration(2, 2, std::chrono::microseconds(7)), std::chrono::microseconds(7));
}

// ---- the file that rank 0 sends ----

constexpr ControlIdentity kIdentity{2, 77};

/// Opens what `file` refers to as control memory; the text of the refusal.
std::string refusal_of(UniqueFd file) {
  const auto opened = ControlMemory::open(std::move(file), kIdentity);
  if (opened) return "accepted";
  EXPECT_EQ(opened.error().code(), ErrorCode::kInvalidArgument);
  return opened.error().text();
}

std::int64_t size_of_control_file() {
  UniqueFd file;
  const std::vector<ProcessId> processes(2, ProcessId::self());
  EXPECT_TRUE(ControlMemory::create_for_processes(kIdentity, processes, file));
  return ::lseek(file.get(), 0, SEEK_END);
}

UniqueFd make_memory_file(std::int64_t num_bytes, int seals) {
  UniqueFd file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(file.get(), num_bytes), 0);
  EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
  return file;
}

TEST(ControlFile, TheRightOneIsMappedAndShared) {
  UniqueFd file;
  const std::vector<ProcessId> processes(2, ProcessId::self());
  const auto made = ControlMemory::create_for_processes(kIdentity, processes, file);
  ASSERT_TRUE(made) << made.error().to_string();
  const auto opened = ControlMemory::open(std::move(file), kIdentity);
  ASSERT_TRUE(opened) << opened.error().to_string();
  (*made)->rank(1).agreed = 42;
  EXPECT_EQ((*opened)->rank(1).agreed, 42U);
}

TEST(ControlFile, ALackOfPagesIsAnError) {
  const int code = tandem::testing::exit_code_in_child([] {
    if (!tandem::testing::refuse_fallocate()) return 10;
    UniqueFd file;
    const std::vector<ProcessId> processes(2, ProcessId::self());
    const auto none = ControlMemory::create_for_processes(kIdentity, processes, file);
    return !none && none.error().code() == ErrorCode::kOutOfMemory ? 0 : 11;
  });
  EXPECT_EQ(code, 0) << "a later store would be a SIGBUS";
}

// SIGXFSZ would end the child.
TEST(ControlFile, TheFileSizeLimitIsAnError) {
  const int code = tandem::testing::exit_code_in_child([] {
    const rlimit limit{8192, 8192};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 10;
    UniqueFd file;
    const std::vector<ProcessId> processes(2, ProcessId::self());
    const auto none = ControlMemory::create_for_processes(kIdentity, processes, file);
    const bool is_named = !none && none.error().text().find("ulimit -f") != std::string::npos;
    return is_named && none.error().code() == ErrorCode::kOutOfMemory ? 0 : 11;
  });
  EXPECT_EQ(code, 0);
}

TEST(ControlFile, ItsSizeCannotBeChanged) {
  UniqueFd file;
  const std::vector<ProcessId> processes(2, ProcessId::self());
  ASSERT_TRUE(ControlMemory::create_for_processes(kIdentity, processes, file));
  EXPECT_NE(::ftruncate(file.get(), 0), 0) << "a peer could make every access fault";
}

TEST(ControlFile, OtherKindsOfFilesAreRefused) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd other_end(ends[1]);
  constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const std::int64_t num_bytes = size_of_control_file();
  EXPECT_NE(refusal_of(UniqueFd(ends[0])).find("not a memory file"), std::string::npos);
  EXPECT_NE(refusal_of(UniqueFd(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC))).find("not a memory file"),
            std::string::npos);
  EXPECT_NE(refusal_of(make_memory_file(num_bytes - 1, kAllSeals)).find("bytes, need"), std::string::npos);
  EXPECT_NE(refusal_of(make_memory_file(num_bytes, F_SEAL_SHRINK)).find("seals"), std::string::npos);
  EXPECT_NE(refusal_of(make_memory_file(num_bytes, 0)).find("seals"), std::string::npos);
  EXPECT_NE(refusal_of(make_memory_file(num_bytes, kAllSeals)).find("magic"), std::string::npos);
  EXPECT_NE(refusal_of(UniqueFd()).find("fstat"), std::string::npos);
}

TEST(ControlFile, AnotherGroupsIsRefused) {
  UniqueFd file;
  const std::vector<ProcessId> processes(2, ProcessId::self());
  ASSERT_TRUE(ControlMemory::create_for_processes({2, 78}, processes, file));
  EXPECT_NE(refusal_of(std::move(file)).find("another group"), std::string::npos);
}

}  // namespace
}  // namespace tandem::bootstrap
