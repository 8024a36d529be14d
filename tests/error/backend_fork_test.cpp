// Objects after fork(): the child gets errors that say what to do, and its end leaves the parent's objects
// alone.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <tandem/backend/backend.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/bootstrap/local_store.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/symm/symmetric_memory.hpp>
#include <vector>

#include "support/process_ranks.hpp"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using testing::describe;
using testing::RankFunction;
using testing::RankProcess;
using testing::start_process_ranks;

constexpr DeviceId kCpu{DeviceKind::kCpu, 0};

/// Runs `work` in a child, which is killed if it hangs. Whether it said yes.
bool holds_in_child(const std::function<bool()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(work() ? 0 : 1);
  }
  int status = -1;
  return child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

template <class T>
bool is_refused(const Result<T>& result, const std::string& what) {
  if (result) return false;
  const std::string& text = result.error().text();
  const bool is_right =
      result.error().code() == ErrorCode::kInvalidArgument && text.starts_with(what) &&
      text.find(" was made in process " + std::to_string(::getppid()) + " and is used in process " +
                std::to_string(::getpid()) + ",") != std::string::npos &&
      text.find("make a new one after the fork") != std::string::npos;
  if (!is_right) std::fprintf(stderr, "child: %s\n", text.c_str());
  return is_right;
}

template <class T>
bool all_hold(std::initializer_list<T> answers) {
  return std::accumulate(answers.begin(), answers.end(), true, std::logical_and<>());
}

TEST(Fork, DevicesAndStreamsAreTheParents) {
  auto device = open_device(kCpu, {}).value();
  auto stream = device->create_stream().value();
  auto event = device->create_event().value();
  std::uint32_t word = 0;
  const TensorView words = TensorView::contiguous(&word, {1}, DType::kU32, kCpu);
  ASSERT_TRUE(stream->sleep(milliseconds(50)));  // the child is made while the stream works
  ASSERT_TRUE(stream->record(*event));
  EXPECT_TRUE(holds_in_child([&] {
    const char* const what = "the stream of cpu:0";
    const bool refused =
        all_hold({is_refused(stream->synchronize(), what), is_refused(stream->record(*event), what),
                  is_refused(stream->stream_write_value32(words, 0, 1), what),
                  is_refused(event->synchronize(Deadline::never()), what),
                  is_refused(device->create_stream(), "the device cpu:0"),
                  is_refused(device->allocate(8), "the device cpu:0")});
    event.reset();
    stream.reset();
    device.reset();
    return refused;
  }));
  EXPECT_TRUE(holds_in_child([&] {
    auto own = open_device(kCpu, {}).value();
    auto on = own->create_stream().value();
    return on->stream_write_value32(words, 0, 1) && on->synchronize() && word == 1;
  }));
  EXPECT_TRUE(stream->stream_write_value32(words, 0, 7));
  EXPECT_TRUE(stream->synchronize());
  EXPECT_EQ(word, 7U);
}

TEST(Fork, StoresAndTheirServersAreTheParents) {
  auto server = LocalStoreServer::create().value();
  const LocalStoreAddress address = server->listen(2).value();
  std::shared_ptr<Store> store = server->local();
  std::shared_ptr<Store> client = open_local_store(address, Deadline::after(milliseconds(10'000))).value();
  std::shared_ptr<Store> threads = make_in_process_store();
  EXPECT_TRUE(holds_in_child([&] {
    const bool refused = all_hold({is_refused(store->add("key", 1), "the store"),
                                   is_refused(threads->add("key", 1), "the store"),
                                   is_refused(store->get("key", Deadline::never()), "the store"),
                                   is_refused(client->add("key", 1), "the connection to a store"),
                                   is_refused(server->connect_pair(), "the server of a store")});
    threads.reset();
    client.reset();
    store.reset();
    server.reset();
    return refused && std::filesystem::exists(address.path);
  }));
  EXPECT_EQ(client->add("key", 1).value(), 1);
  EXPECT_TRUE(open_local_store(address, Deadline::after(milliseconds(10'000)))) << "the child has removed it";
}

/// Whether memory of a group is mapped in this process.
bool holds_segments() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:tandem") != std::string::npos) return true;
  }
  return false;
}

/// What a child of rank 1 does to the rank's objects.
bool use_in_child(std::unique_ptr<Group>& group, std::unique_ptr<Device>& device,
                  std::unique_ptr<Stream>& stream, std::shared_ptr<symm::Handle>& handle,
                  const TensorView& in, const TensorView& out) {
  if (holds_segments()) return false;
  const std::vector<int> members{0, 1};
  const bool refused =
      all_hold({is_refused(group->status(), "group 'world'"),
                is_refused(group->all_gather({}, "child"), "group 'world'"),
                is_refused(group->subgroup(members, "child"), "group 'world'"),
                is_refused(coll::all_gather({.input = in, .output = out}, *group, *stream), "group 'world'"),
                is_refused(coll::all_gather({.input = out, .output = in}, *group, *stream), "group 'world'"),
                is_refused(handle->barrier(*stream), "the handle of symmetric memory")});
  group->poison(Error(ErrorCode::kPeerLost, "the child has enough"), 1);
  group.reset();
  const bool outlives = is_refused(handle->barrier(*stream), "the handle of symmetric memory");
  handle.reset();
  stream.reset();
  device.reset();
  auto own = Group::create({.rank = 0, .size = 1, .name = "own", .store = make_in_process_store()});
  return refused && outlives && own && (*own)->all_gather({}, "own");
}

const RankFunction kForks("forks", [](RankProcess& self) -> Result<void> {
  auto group = self.create_group().value();
  auto device = open_device(kCpu, {}).value();
  auto stream = device->create_stream().value();
  const Tensor tensor = symm::empty({4}, DType::kF32, *device).value();
  auto handle = symm::rendezvous(tensor, *group).value();
  std::vector<float> mine(2, 1.0F + static_cast<float>(self.rank()));
  std::vector<float> all(4);
  const TensorView in = TensorView::contiguous(mine.data(), {2}, DType::kF32, kCpu);
  const TensorView out = TensorView::contiguous(all.data(), {4}, DType::kF32, kCpu);
  EXPECT_TRUE(holds_segments()) << "the test would prove nothing of its child";
  for (int round = 0; round < 5; ++round) {
    // Rank 1's stream waits for rank 0, which waits for the child's end.
    if (self.rank() == 1) {
      if (auto done = coll::all_gather({.input = in, .output = out}, *group, *stream); !done) return done;
      EXPECT_TRUE(holds_in_child([&] { return use_in_child(group, device, stream, handle, in, out); }));
      self.publish("child " + std::to_string(round), "has ended");
    } else {
      if (auto ended = self.wait_for("round " + std::to_string(round)); !ended) return ended;
      if (auto done = coll::all_gather({.input = in, .output = out}, *group, *stream); !done) return done;
    }
    if (auto done = stream->synchronize(); !done) return done;
    EXPECT_EQ(all, (std::vector<float>{1, 1, 2, 2}));
    if (auto done = handle->barrier(*stream); !done) return done;
    if (auto done = stream->synchronize(); !done) return done;
  }
  return {};
});

TEST(Fork, GroupsAreTheParents) {
  auto ranks = start_process_ranks(2, "forks");
  for (int round = 0; round < 5; ++round) {
    EXPECT_TRUE(ranks.published(1, "child " + std::to_string(round)));
    ranks.announce("round " + std::to_string(round));
  }
  const JobOutcome outcome = ranks.wait();
  EXPECT_TRUE(outcome.status()) << describe(outcome);
}

TEST(Fork, JobsAreTheParents) {
  auto job = Job::start(
      {.ranks = 2, .arguments = {}, .program = "/bin/sh", .interpreter_arguments = {"-c", "sleep 1"}});
  ASSERT_TRUE(job);
  EXPECT_TRUE(holds_in_child([&] {
    const bool refused = is_refused((*job)->wait(Deadline::after(milliseconds(0))), "the job");
    job->reset();
    return refused;
  }));
  const auto outcome = (*job)->wait(Deadline::after(milliseconds(60'000)));
  ASSERT_TRUE(outcome);
  for (const RankOutcome& rank : outcome->ranks)
    EXPECT_TRUE(rank.signal == 0 && rank.exit_code == 0) << "the child has ended it: " << describe(*outcome);
}

}  // namespace
}  // namespace tandem
