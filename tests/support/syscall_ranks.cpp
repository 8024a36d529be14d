// A small program whose system calls fail: two ranks exchange bytes and meet in symmetric memory.
//
//   syscall_ranks processes | threads | listen
//
// `listen`: the ranks are processes, and find each other through a store that carries no files.
// Exit code 0 and a line on stdout; else 1 and a line on stderr. It has one more where files are left open.
#include <dirent.h>

#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <tandem/tandem.hpp>

#include "support/bytes_only_store.hpp"

namespace tandem {
namespace {

int num_open_files() {
  DIR* const folder = ::opendir("/proc/self/fd");
  int count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

/// Calls of the library throw here where they fail; this makes an error of it again.
template <class Function>
Result<void> caught(Function function) {
  try {
    return function();
  } catch (const tl::bad_expected_access<Error>& failed) {
    return tl::unexpected<Error>(failed.error());
  }
}

Result<void> work_or_throw(Group& group) {
  const std::string mine = "of rank " + std::to_string(group.rank());
  const auto all = group.all_gather(std::as_bytes(std::span(mine)), "texts").value();
  const auto device = open_device({DeviceKind::kCpu, 0}, group.config()).value();
  const auto stream = device->create_stream().value();
  const Tensor words = symm::empty({64}, DType::kU32, *device).value();
  const auto handle = symm::rendezvous(words, group).value();
  const auto peers = handle->get_buffer(1 - group.rank(), {64}, DType::kU32).value();
  if (auto done = stream->memset32(peers, 0, 40 + static_cast<std::uint32_t>(group.rank()), 64); !done)
    return done;
  if (auto done = handle->barrier(*stream); !done) return done;
  if (auto done = stream->synchronize(); !done) return done;
  const auto got = words.view().data_as<std::uint32_t>()[63];
  if (got != 41U - static_cast<std::uint32_t>(group.rank()) || all.size() != 2)
    return fail(ErrorCode::kInternal, "got " + std::to_string(got));
  if (group.rank() == 0) std::printf("all is right\n");
  return {};
}

Result<void> work(Group& group) {
  return caught([&] { return work_or_throw(group); });
}

Result<void> run_as_rank(const RankContext& context, bool carries_files) {
  const auto store = carries_files ? context.store : std::make_shared<test::BytesOnly>(context.store);
  const Config config = Config::from_environment().value();
  const auto run = [&]() -> Result<void> {
    const auto group =
        Group::create(
            {.rank = context.rank, .size = context.size, .name = "world", .store = store, .config = config})
            .value();
    return work(*group);
  };
  const auto done = caught(run);
  if (!done) report_failure(context, done.error());
  return done;
}

/// How the process began, and whether it ends well.
struct Life {
  int num_open_files;
  bool is_well = true;
};

Result<void> run(int argc, char** argv, Life& life) {
  const std::string_view kind = argc > 1 ? argv[argc - 1] : "";
  const auto context = join_job(argc, argv).value();
  if (context) {
    --life.num_open_files;  // its connection, which the store closes
    // The launcher tells why.
    life.is_well = run_as_rank(*context, kind != "listen").has_value();
    return {};
  }
  const Config config = Config::from_environment().value();
  if (kind == "threads") return run_thread_ranks(2, config, work);
  LaunchOptions options;
  options.ranks = 2;
  options.arguments = {std::string(kind)};
  const auto job = Job::start(options).value();
  const auto outcome = job->wait(Deadline::after(std::chrono::seconds(60))).value();
  return outcome.status();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::Life life{tandem::num_open_files()};
  const auto done = tandem::caught([&] { return tandem::run(argc, argv, life); });
  if (!done) std::fprintf(stderr, "%s\n", done.error().to_string().c_str());
  const int left = tandem::num_open_files() - life.num_open_files;
  if (left > 0) std::fprintf(stderr, "%d files are left open\n", left);
  return done && life.is_well && left <= 0 ? 0 : 1;
}
