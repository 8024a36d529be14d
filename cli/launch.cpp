#include "launch.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <thread>

#include "base/make_thread.hpp"
#include "failure.hpp"
#include "shell_words.hpp"

namespace tandem::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::array<std::string_view, 5> kForAll = {"bench", "check", "demo", "run", "tune"};
constexpr std::array<std::string_view, 4> kForRank0 = {"doctor", "graph", "program", "trace"};

constexpr const char* kArgumentsKey = "launch/arguments";
constexpr const char* kLeavingKey = "launch/leaving";  // counts the ranks that have heard of the end

std::string announcement_key(int number) {
  return fmt::format("launch/announcement/{}", number);
}

/// The store of one job of several that share a store. What the library keeps of the processes is common to
/// all.
class JobStore final : public Store {
 public:
  JobStore(std::shared_ptr<Store> store, int job)
      : store_(std::move(store)), prefix_(fmt::format("job/{}/", job)) {}

  Result<void> set(std::string_view key, std::span<const std::byte> value) override {
    return store_->set(full(key), value);
  }
  Result<Bytes> get(std::string_view key, Deadline deadline) override {
    return store_->get(full(key), deadline);
  }
  Result<std::int64_t> add(std::string_view key, std::int64_t delta) override {
    return store_->add(full(key), delta);
  }
  Result<void> erase(std::string_view key) override { return store_->erase(full(key)); }
  [[nodiscard]] bool carries_files() const override { return store_->carries_files(); }
  Result<void> set_file(std::string_view key, int fd) override { return store_->set_file(full(key), fd); }
  Result<UniqueFd> get_file(std::string_view key, Deadline deadline) override {
    return store_->get_file(full(key), deadline);
  }

 private:
  [[nodiscard]] std::string full(std::string_view key) const {
    return fmt::format("{}{}", key.starts_with("tandem/job/") ? "" : prefix_, key);
  }

  std::shared_ptr<Store> store_;
  std::string prefix_;
};

RankContext of_job(const RankContext& self, int job) {
  RankContext context = self;
  context.store = std::make_shared<JobStore>(self.store, job);
  return context;
}

bool asks_for_help(const std::vector<std::string>& words) {
  return std::any_of(words.begin() + 1, words.end(),
                     [](const std::string& word) { return word == "--help" || word == "-h"; });
}

template <class Names>
bool is_one_of(const Names& names, const std::string& word) {
  return std::find(names.begin(), names.end(), word) != names.end();
}

}  // namespace

bool is_for_all_ranks(const std::vector<std::string>& words) {
  return words.size() > 1 && is_one_of(kForAll, words[1]) && !asks_for_help(words);
}

int exit_code_without_work(const std::vector<std::string>& words) {
  if (words.size() < 2) return kBadInput;
  const bool is_known = words[1].starts_with("-") || is_one_of(kForRank0, words[1]) || asks_for_help(words);
  return is_known ? kOk : kBadInput;
}

// ---- rank 0 ----

Launch::Launch(RankContext self, const std::vector<std::string>& arguments, RankWork work)
    : self_(std::move(self)), work_(std::move(work)) {
  send_to_ranks(*self_.store, kArgumentsKey, arguments);
}

Launch::~Launch() {
  if (!has_ended_) end(kFailed);
}

void Launch::announce(const nlohmann::json& what) {
  send_to_ranks(*self_.store, announcement_key(num_announced_), what);
  ++num_announced_;
}

std::vector<nlohmann::json> Launch::run(const JobRequest& request) {
  const int number = num_announced_;
  const RankContext job = of_job(self_, number);
  prepare_job(*job.store, request);
  announce({{"job", number}});
  std::optional<Failure> own;
  std::thread thread = take(make_caller_thread("rank 0", [&] {
    own = work_and_publish(job, work_);
    if (own) report_failure(self_, own->error());
  }));
  await_others(*job.store);
  thread.join();
  check(own);
  return collect_results(*job.store, request);
}

void Launch::await_others(Store& store) const {
  constexpr auto kLook = 10ms;
  constexpr auto kGrace = 2s;  // for the others to fail too: one of them may know the cause
  Deadline until = Deadline::never();
  const auto is_settled = [&](int rank) {
    return has_result(store, rank) || find_failure(self_, rank).has_value();
  };
  for (int rank = 1; rank < self_.size; ++rank) {
    while (!is_settled(rank) && !until.expired()) {
      std::this_thread::sleep_for(kLook);
      bool has_failed = false;
      for (int r = 0; r < self_.size; ++r) has_failed = has_failed || find_failure(self_, r).has_value();
      if (has_failed) until = Deadline::earlier(until, Deadline::after(kGrace));
    }
  }
}

void Launch::check(const std::optional<Failure>& own) const {
  // The cause is a failure that is not only the loss of another rank.
  const auto is_victim = [](const Error& error) { return error.code() == ErrorCode::kPeerLost; };
  std::optional<Failure> first;
  for (int rank = 0; rank < self_.size; ++rank) {
    const auto error = rank == 0 && own ? std::optional(own->error()) : find_failure(self_, rank);
    if (!error || (first && (!is_victim(first->error()) || is_victim(*error)))) continue;
    first = Failure(exit_code_of(*error),
                    Error(error->code(), fmt::format("rank {}: {}", rank, error->to_string())));
  }
  if (first) throw Failure(*first);
}

void Launch::end(int exit_code) {
  has_ended_ = true;
  try {
    announce({{"end", exit_code}});
  } catch (const Failure&) {
    return;  // without memory for the word, the others learn it by the loss of the store
  }
  bool has_failed = false;
  for (int rank = 0; rank < self_.size; ++rank)
    has_failed = has_failed || find_failure(self_, rank).has_value();
  const auto until = Deadline::after(has_failed ? 500ms : 2s);  // the dead do not answer
  while (!until.expired() && self_.store->add(kLeavingKey, 0).value_or(self_.size) < self_.size - 1)
    std::this_thread::sleep_for(1ms);
}

// ---- the others ----

namespace {

nlohmann::json await_announcement(const RankContext& self, int number) {
  return from_store(*self.store, announcement_key(number), Deadline::never());
}

/// Throws exit 2 if this process was started with other arguments than rank 0.
void check_arguments(const RankContext& self, const std::vector<std::string>& arguments) {
  const auto of_rank_0 = receive(self, kArgumentsKey).get<std::vector<std::string>>();
  if (arguments == of_rank_0) return;
  throw Failure(kBadInput,
                Error(ErrorCode::kMismatch, fmt::format("started as '{}', rank 0 as '{}': start all alike",
                                                        shell_words(arguments), shell_words(of_rank_0))));
}

}  // namespace

int follow_launch(const RankContext& self, const std::vector<std::string>& arguments, const RankWork& work) {
  std::optional<Failure> own;
  try {
    try {
      check_arguments(self, arguments);
    } catch (const Failure& mismatch) {
      own = mismatch;
      report_failure(self, own->error());
    }
    for (int number = 0;; ++number) {
      const nlohmann::json what = await_announcement(self, number);
      if (what.contains("end")) {
        static_cast<void>(self.store->add(kLeavingKey, 1));
        return what.at("end").get<int>();
      }
      if (own) continue;
      own = work_and_publish(of_job(self, number), work);
      if (own) report_failure(self, own->error());
    }
  } catch (const Failure& lost) {
    const Error& error = own ? own->error() : lost.error();
    throw Failure(kFailed, Error(error.code(), fmt::format("rank {}: {}; rank 0 can no longer say so",
                                                           self.rank, error.to_string())));
  }
}

}  // namespace tandem::cli
