#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <tandem/transport/mpi.hpp>

#include "base/uninterrupted.hpp"
#include "command.hpp"
#include "failure.hpp"
#include "launch.hpp"
#include "shell_words.hpp"
#include "tracing.hpp"
#include "version.hpp"

namespace tandem::cli {
namespace {

struct Subcommand {
  CLI::App* app = nullptr;
  std::unique_ptr<Command> command;
};

constexpr const char* kListGpus = "list-gpus";  // for the tool itself

std::vector<Subcommand> define_commands(CLI::App& app) {
  app.set_version_flag("--version", fmt::format("tandem {}", kVersion));
  app.require_subcommand(1);
  std::vector<Subcommand> subcommands;
  const auto add = [&](const char* name, const char* summary, std::unique_ptr<Command> command) {
    CLI::App* sub = app.add_subcommand(name, summary);
    command->define(*sub);
    subcommands.push_back({sub, std::move(command)});
  };
  add("demo", "A tensor-parallel Llama MLP, serial against overlapped, checked", make_demo());
  add("run", "Your tensors through one op, sharded over ranks; the whole result in a file", make_run());
  add("bench", "Times of an op, its product and its communication", make_bench());
  add("check", "Correctness sweep over ops, types, dims, algorithms and numbers of ranks", make_check());
  add("tune", "Measures which algorithm is fastest, for auto to look up", make_tune());
  add("plan", "What ops and models will take on GPUs that need not be there", make_plan());
  add("doctor", "What this machine allows and why not", make_doctor());
  add("graph", "Captured programs: show, fuse and run", make_graph());
  add("program", "The host program of a distributed matmul: print it, run it", make_program());
  add("trace", "The timeline of demo, run or bench: JSON for Perfetto, and a page", make_trace());
  add(kListGpus, "", make_list_gpus());
  subcommands.back().app->group("");  // hidden
  return subcommands;
}

// A stream that the caller closed: otherwise memory or a socket gets its number and what is printed.
void open_closed_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    if (uninterrupted([] { return ::open("/dev/null", O_RDWR); }) < 0) return;
  }
}

void check_report_written() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw Failure(kFailed,
                Error(ErrorCode::kDriver,
                      fmt::format("cannot write the report to stdout: {}", std::strerror(errno)), errno));
}

// One line, whatever the text holds.
int complain(const Failure& failure) {
  std::string line = failure.error().text();
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::fputs(fmt::format("tandem: {}\n", line).c_str(), stderr);  // not print(): it throws when it can't
  return failure.exit_code();
}

void check_command_name(const std::vector<Subcommand>& subcommands, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  const std::string name = argv[1];
  const bool known = std::any_of(subcommands.begin(), subcommands.end(), [&](const Subcommand& subcommand) {
    return subcommand.app->get_name() == name;
  });
  if (known) return;
  constexpr const char* kKnown = "demo, run, bench, check, tune, plan, doctor, graph, program and trace";
  bad_input(fmt::format("unknown command '{}': there are {}; see tandem --help", name, kKnown));
}

Command& parse(CLI::App& app, const std::vector<Subcommand>& subcommands, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) throw;  // --help, --version
    const bool has_command = argc > 1 && argv[1][0] != '-';
    bad_input(fmt::format("{}; see tandem {}{}--help", error.what(), has_command ? argv[1] : "",
                          has_command ? " " : ""));
  }
  const auto chosen = std::find_if(subcommands.begin(), subcommands.end(),
                                   [](const Subcommand& subcommand) { return subcommand.app->parsed(); });
  return *chosen->command;
}

/// The work of a rank by a command of its own: a process may have several.
nlohmann::json work_of_rank(const RankContext& rank, int argc, char** argv) {
  CLI::App own_app;
  const auto own = define_commands(own_app);
  Command& command = parse(own_app, own, argc, argv);
  return command.run_rank(rank, take(Config::from_environment()));
}

int run_as_rank(const RankContext& context, int argc, char** argv) {
  // The launcher answers ^C for all of them; what it blocked for itself must not stay blocked here.
  std::signal(SIGINT, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  return work_as_ranks(context, [&](const RankContext& rank) { return work_of_rank(rank, argc, argv); });
}

/// Names of the GPUs, or why there are none. Asked in a process of its own: this one starts others, and the
/// CUDA runtime does not outlive that well.
void probe_gpus(Machine& machine, Interrupts& interrupts) {
  if (!machine.has_gpu_driver) return;
  JobRequest request;
  request.arguments = {kListGpus};
  const nlohmann::json found = run_job(request, {interrupts})[0];
  machine.gpus = found.at("names").get<std::vector<std::string>>();
  machine.why_no_gpu = found.at("why_not").get<std::string>();
}

/// Where the ranks of a command come from, if another program has started them.
struct Launched {
  LaunchedRank rank0;
  Launch& launch;
};

/// `argv`: without `trace`. `arguments`: what the user wrote.
int run_as_launcher(CLI::App& app, const std::vector<Subcommand>& subcommands, int argc, char** argv,
                    std::vector<std::string> arguments, const std::optional<std::filesystem::path>& trace,
                    const std::optional<Launched>& launched) {
  check_command_name(subcommands, argc, argv);
  Command& command = parse(app, subcommands, argc, argv);
  auto config = Config::from_environment();
  if (!config) bad_input(config.error().text());
  Interrupts interrupts;
  Machine machine = probe_machine();
  probe_gpus(machine, interrupts);
  if (launched) {
    machine.launched_ranks = launched->rank0.size;
    machine.launched_here = launched->rank0.local_size;
    machine.launcher = launched->rank0.launcher;
  }
  std::optional<Tracing> tracing;
  if (trace) tracing.emplace(*trace);
  const std::string written = shell_words(arguments);
  const int exit_code = command.launch({std::move(arguments),
                                        *std::move(config),
                                        machine,
                                        {interrupts, launched ? &launched->launch : nullptr},
                                        tracing ? &*tracing : nullptr});
  if (tracing) tracing->finish(fmt::format("tandem {}", written), machine);
  check_report_written();
  return exit_code;
}

/// The words of a command line as main() gets them.
class Words {
 public:
  explicit Words(std::vector<std::string> words) : words_(std::move(words)) {
    for (std::string& word : words_) pointers_.push_back(word.data());
    pointers_.push_back(nullptr);
  }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;

  [[nodiscard]] int count() const { return static_cast<int>(words_.size()); }
  [[nodiscard]] char** values() { return pointers_.data(); }

 private:
  std::vector<std::string> words_;
  std::vector<char*> pointers_;
};

int run_in_front(int argc, char** argv, CommandLine& line, const std::optional<Launched>& launched) {
  Words words(line.words);
  CLI::App app("Matrix products with their communication hidden inside", "tandem");
  const auto subcommands = define_commands(app);
  try {
    return run_as_launcher(app, subcommands, words.count(), words.values(), {argv + 1, argv + argc},
                           line.trace, launched);
  } catch (const CLI::ParseError& help) {
    return app.exit(help);
  }
}

RankContext join(const LaunchedRank& launched, bool* is_told) {
  const auto config = Config::from_environment();
  if (!config) bad_input(config.error().text());
  JoinOptions options{.timeout = config->rendezvous_timeout, .is_told = is_told};
  if (launched.local_size == launched.size) return take(join_launched(launched, options));
  // On several hosts, where MPI carries the store and the rows.
  const MpiWorld world = take(open_mpi(*config));
  if (world.rank != launched.rank || world.size != launched.size) {
    not_supported(
        fmt::format("{} has started {} ranks on several hosts, and to {} this is rank {} of {}: start "
                    "them with mpirun, or with srun --mpi=pmix",
                    launched.launcher, launched.size, world.library, world.rank, world.size));
  }
  options.store = world.store;
  RankContext self = take(join_launched(launched, options));
  self.transport = world.transport;
  return self;
}

/// Whether ranks on several hosts, which share no memory, can run a command.
bool may_cross_hosts(const std::vector<std::string>& words) {
  return words.size() > 1 && words[1] != "tune";
}

/// Rank 0 of a command whose ranks another program has started.
int run_launched_rank_0(const LaunchedRank& launched, int argc, char** argv, CommandLine& line) {
  Words words(line.words);
  const RankContext self = join(launched, nullptr);
  Launch launch(self, {argv + 1, argv + argc},
                [&](const RankContext& rank) { return work_of_rank(rank, words.count(), words.values()); });
  int exit_code = kFailed;
  try {
    exit_code = run_in_front(argc, argv, line, Launched{launched, launch});
  } catch (const Failure& failure) {
    // Said before the others end: their end may have the launcher end this process.
    exit_code = complain(failure);
  }
  launch.end(exit_code);
  return exit_code;
}

/// Another rank of it. What is wrong with the command line, rank 0 says.
int run_launched_rank(const LaunchedRank& launched, int argc, char** argv) {
  CommandLine line;
  try {
    line = CommandLine::of(argc, argv);
  } catch (const Failure& failure) {
    return failure.exit_code();
  }
  if (!is_for_all_ranks(line.words)) return exit_code_without_work(line.words);
  if (launched.local_size < launched.size && !may_cross_hosts(line.words)) return kNotSupported;
  bool is_told = false;
  std::optional<RankContext> self;
  try {
    self = join(launched, &is_told);
  } catch (const Failure& failure) {
    if (is_told) return failure.exit_code();
    throw;
  }
  Words words(line.words);
  return follow_launch(*self, {argv + 1, argv + argc}, [&](const RankContext& rank) {
    return work_of_rank(rank, words.count(), words.values());
  });
}

int run(int argc, char** argv) {
  const auto context = take(join_job(argc, argv));
  if (context) {
    Words words(CommandLine::of(argc, argv).words);
    return run_as_rank(*context, words.count(), words.values());
  }
  const auto found = launched_rank();
  if (!found) bad_input(found.error().text());
  const std::optional<LaunchedRank>& launched = *found;
  if (launched && launched->rank != 0) return run_launched_rank(*launched, argc, argv);
  CommandLine line = CommandLine::of(argc, argv);
  if (launched && is_for_all_ranks(line.words) && launched->local_size < launched->size &&
      !may_cross_hosts(line.words)) {
    not_supported(
        fmt::format("{} has started {} ranks, {} of them on this host: tune measures for auto, which "
                    "needs no table on several hosts; start at most {} ranks on one",
                    launched->launcher, launched->size, launched->local_size, launched->local_size));
  }
  if (launched && is_for_all_ranks(line.words)) return run_launched_rank_0(*launched, argc, argv, line);
  return run_in_front(argc, argv, line, std::nullopt);
}

}  // namespace
}  // namespace tandem::cli

int main(int argc, char** argv) {
  tandem::cli::open_closed_streams();
  tandem::cli::set_signals_of_this_program();
  try {
    return tandem::cli::run(argc, argv);
  } catch (const tandem::cli::Failure& failure) {
    return tandem::cli::complain(failure);
  } catch (const std::bad_alloc& lack) {
    return tandem::cli::complain(tandem::cli::out_of_memory(lack));
  } catch (const std::exception& error) {
    return tandem::cli::complain(
        {tandem::cli::kFailed, tandem::Error(tandem::ErrorCode::kInternal, error.what())});
  }
}
