#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/resource.h>

#include <CLI/Version.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <tandem/backend/backend.hpp>
#include <tandem/cost/folder.hpp>
#include <tandem/cost/gpu_times.hpp>
#include <tandem/cost/rates.hpp>

#include "backend/for_tools.hpp"
#include "command.hpp"
#include "failure.hpp"
#include "flight_record_file.hpp"
#include "host_probes.hpp"
#include "row_file.hpp"
#include "session.hpp"
#include "tracing_facts.hpp"
#include "version.hpp"

namespace tandem::cli {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

/// Prints findings and keeps them; remembers whether something that tandem needs is missing.
class Findings {
 public:
  void say(const char* topic, const std::string& text) {
    fmt::print("  {:<12} {}\n", topic, text);
    all_.push_back({{"topic", topic}, {"text", text}});
  }
  void need(const char* topic, const Support& support, const std::string& meaning) {
    say(topic, support.ok ? fmt::format("ok: {}", meaning)
                          : fmt::format("MISSING: {} ({})", support.why_not, meaning));
    if (!support.ok && first_missing_.empty()) first_missing_ = fmt::format("{}: {}", topic, support.why_not);
  }
  [[nodiscard]] const std::string& first_missing() const { return first_missing_; }
  /// [{topic, text}].
  [[nodiscard]] const nlohmann::json& all() const { return all_; }

 private:
  nlohmann::json all_ = nlohmann::json::array();
  std::string first_missing_;
};

// Of the processor's features, those that kernels ask for.
std::string isa_features() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && line.rfind("flags", 0) != 0) {
  }
  std::string found;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    for (const char* wanted : {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_bf16",
                               "avx512_vnni", "amx_bf16"}) {
      if (word == wanted) found += fmt::format("{}{}", found.empty() ? "" : " ", word);
    }
  }
  return found.empty() ? "none of those that kernels use; the scalar kernels run" : found;
}

void show_machine(const Machine& machine, Findings& findings) {
  findings.say("CPU", machine.cpu_model);
  findings.say("features", isa_features());
  findings.say("cores",
               fmt::format("{} usable: {} online, {} in the affinity mask, cgroup limit {}",
                           machine.usable_cores(), machine.online_cores, machine.affinity_cores,
                           machine.cgroup_cores > 0 ? fmt::format("{:.2f}", machine.cgroup_cores) : "none"));
  findings.say("memory", fmt::format("{:.1f} GiB", static_cast<double>(machine.memory_bytes) / kGiB));
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  findings.say("open files", fmt::format("at most {} a process", files.rlim_cur));
}

Support cpu_device(const Config& config, std::string& description) {
  auto device = open_device({DeviceKind::kCpu, 0}, config);
  if (!device) return Support::no(device.error().to_string());
  description = (*device)->description();
  return Support::yes();
}

void show_settings(const Config& config, Findings& findings) {
  const Config defaults;
  const auto show = [&](const char* name, const std::string& value, const std::string& usual) {
    findings.say("setting", fmt::format("{} = {}{}", name, value, value == usual ? " (default)" : ""));
  };
  const auto micros = [](const std::optional<std::chrono::microseconds>& value) {
    return value ? std::to_string(value->count()) : std::string("by ranks and cores");
  };
  constexpr const char* kLevels[] = {"debug", "info", "warning", "error", "off"};
  show("TANDEM_LOG", kLevels[static_cast<int>(config.log_level)],
       kLevels[static_cast<int>(defaults.log_level)]);
  show("TANDEM_OP_TIMEOUT_MS", std::to_string(config.op_timeout.count()),
       std::to_string(defaults.op_timeout.count()));
  show("TANDEM_RENDEZVOUS_TIMEOUT_MS", std::to_string(config.rendezvous_timeout.count()),
       std::to_string(defaults.rendezvous_timeout.count()));
  show("TANDEM_SPIN_US", micros(config.spin), micros(defaults.spin));
  show("TANDEM_LINK_DELAY_US", std::to_string(config.link_delay.count()),
       std::to_string(defaults.link_delay.count()));
  show("TANDEM_ISA", config.isa.value_or("best available"), "best available");
  show("TANDEM_RECORD_AFTER", std::to_string(config.record_after), std::to_string(defaults.record_after));
  show("TANDEM_MAX_PLANS", std::to_string(config.max_plans), std::to_string(defaults.max_plans));
  show("TANDEM_NATIVE_KERNEL", config.native_kernel.empty() ? "predicted" : config.native_kernel,
       "predicted");
  show("TANDEM_NATIVE_PIECES", config.native_pieces ? std::to_string(*config.native_pieces) : "predicted",
       "predicted");
  show("TANDEM_BATCH_INVARIANT", config.batch_invariant ? "1" : "0", "0");
  show("TANDEM_NAN_CHECK", config.nan_check ? "1" : "0", "0");
  show("TANDEM_CUBLASLT_LIBRARY", config.cublaslt_library.value_or("searched for"), "searched for");
  show("TANDEM_NCCL_LIBRARY", config.nccl_library.value_or("searched for"), "searched for");
  show("TANDEM_MPI_LIBRARY", config.mpi_library.value_or("searched for"), "searched for");
  show("TANDEM_HOST", config.host.empty() ? "the system's" : config.host, "the system's");
  show("TANDEM_RECORDER_FOLDER", config.recorder_folder.empty() ? "none" : config.recorder_folder, "");
  show("TANDEM_TUNE_FOLDER", config.tune_folder.empty() ? "none" : config.tune_folder, "");
  const std::string rates = to_string(config.core_rates);
  show("TANDEM_RATES", rates.empty() ? "measured" : rates, "measured");
  show("TANDEM_MEASURE_GPUS", config.measure_gpus ? "1" : "0", "1");
  show("TANDEM_FAULT", config.fault.empty() ? "none" : config.fault, "none");
}

/// As a group of at least so many ranks looks them up.
void show_speeds(const Config& config, const std::string& device, int cores, Findings& findings) {
  const cost::FoundRates found = cost::read_rates(config.tune_folder, device, cores);
  if (!found.warning.empty()) findings.say("speeds", found.warning);
  const std::string kept = to_string(found.rates);
  findings.say("speeds", fmt::format("of a core, in GFLOP/s, G elements/s and GB/s: {}",
                                     kept.empty() ? "none kept; ops that ask auto measure them" : kept));
}

/// What groups of all numbers of ranks up to that of the GPUs find, or measure.
void show_gpu_rates(const Config& config, std::size_t num_gpus, Findings& findings) {
  constexpr const char* kTopic = "GPU rates";
  if (num_gpus < 2) return;
  const auto gpu = open_device({DeviceKind::kCuda, 0}, config);
  if (!gpu) return findings.say(kTopic, gpu.error().text());
  for (int ranks = 2; ranks <= static_cast<int>(num_gpus); ++ranks) {
    const cost::FoundGpuTimes found = cost::read_gpu_times(config.tune_folder, (*gpu)->description(), ranks);
    if (!found.warning.empty()) findings.say(kTopic, found.warning);
    if (found.times.is_empty()) {
      findings.say(kTopic, fmt::format("{} ranks: none kept; {}", ranks,
                                       config.measure_gpus && !config.tune_folder.empty()
                                           ? "the first group measures them"
                                           : "auto predicts with those of the reference machine"));
      continue;
    }
    for (const std::string& rate : cost::describe_gpu_rates(found.times))
      findings.say(kTopic, fmt::format("{} ranks, measured: {}", ranks, rate));
  }
}

void show_table(const Config& config, const std::string& device, Findings& findings) {
  // As a group reads it: what is counted here is what its ops look up.
  const cost::Found found = cost::read_table(config.tune_folder, device);
  if (!found.warning.empty()) findings.say("tuned", found.warning);
  const std::size_t rows = found.table.rows.size();
  findings.say("tuned", fmt::format("{} problems measured on this processor{}", rows,
                                    rows == 0 ? "; tandem tune measures them" : ""));
}

/// What a timeline or a profiler can see here. Adds to `shown`.
void show_tracing(const std::vector<TracingFact>& facts, Findings& findings, nlohmann::json& shown) {
  for (const TracingFact& fact : facts) {
    findings.say("tracing", to_text(fact));
    shown.push_back(to_json(fact));
  }
}

std::string temp_folder() {
  std::error_code error;
  const auto path = std::filesystem::temp_directory_path(error);
  return error ? error.message() : path.string();
}

class DoctorCommand : public Command {
 public:
  void define(CLI::App& app) override {
    app.add_option("--json", json_path_, "Append the findings to this file, as one JSON object");
    app.add_option("--recorder", recorder_path_,
                   "say where the ranks of a failed group part, by this file from TANDEM_RECORDER_FOLDER");
  }
  int launch(const Invocation& invocation) override;
  nlohmann::json run_rank(const RankContext& context, const Config& config) override;

 private:
  static Support two_ranks(const Invocation& invocation, Findings& findings);

  std::string json_path_;
  std::string recorder_path_;
};

int DoctorCommand::launch(const Invocation& invocation) {
  if (!recorder_path_.empty()) {
    fmt::print("{}", describe(read_flight_record(recorder_path_)));
    return kOk;
  }
  const RowFile file(json_path_);
  Findings findings;
  const Machine& machine = invocation.machine;
  fmt::print("{}\n", JobFlags().choose(machine).heading);
  show_machine(machine, findings);
  std::string device;
  findings.need("cpu device", cpu_device(invocation.config, device), "streams and products");
  if (!device.empty()) findings.say("", device);
  findings.need("memfd", probe_sealed_memory(), "memory with seals that ranks share; /dev/shm is not used");
  findings.need("passing fds", probe_fd_passing(), "handing that memory to another rank");
  findings.need("futex", probe_futex(), "sleeping until a signal comes");
  const Support pidfd = probe_pidfd();
  findings.say("pidfd", pidfd.ok ? "ok: noticing at once that a rank died"
                                 : fmt::format("not here: {}; /proc is read every 10 ms", pidfd.why_not));
  findings.need("two ranks", two_ranks(invocation, findings), "starting processes that meet in a group");
  findings.say("temp folder",
               fmt::format("{} (used only by jobs that other launchers start)", temp_folder()));
  if (machine.gpus.empty()) findings.say("GPU", machine.why_no_gpu);
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
    findings.say("GPU", fmt::format("{}: {}", i, machine.gpus[i]));
  }
  nlohmann::json tracing = nlohmann::json::array();
  show_tracing(profiler_facts(machine), findings, tracing);
  // No processes are made from here on: these start the CUDA runtime.
  for (const std::string& line : describe_cuda_libraries(invocation.config))
    findings.say("GPU library", line);
  for (const std::string& line : describe_cuda_links()) findings.say("GPU link", line);
  for (const std::string& line : describe_cuda_kernels()) findings.say("GPU kernel", line);
  findings.say("versions",
               fmt::format("tandem {}{}{}, gcc {}, libc {}, Linux {}, CLI11 {}, fmt {}.{}.{}, json {}.{}.{}",
                           kVersion, *kCommit ? " commit " : "", kCommit, __VERSION__, gnu_get_libc_version(),
                           machine.kernel_release, CLI11_VERSION, FMT_VERSION / 10000,
                           FMT_VERSION / 100 % 100, FMT_VERSION % 100, NLOHMANN_JSON_VERSION_MAJOR,
                           NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH));
  show_settings(invocation.config, findings);
  show_speeds(invocation.config, device, machine.usable_cores(), findings);
  show_gpu_rates(invocation.config, machine.gpus.size(), findings);
  show_table(invocation.config, device, findings);
  show_tracing(device_facts(invocation.config, machine), findings, tracing);
  file.append({{"findings", findings.all()},
               {"missing", findings.first_missing()},
               {"tracing", tracing},
               {"commit", kCommit}});
  if (!findings.first_missing().empty()) {
    not_supported(fmt::format("doctor: {}; tandem cannot run ranks here", findings.first_missing()));
  }
  return kOk;
}

/// Also says whether the ranks would notice the death of one.
Support DoctorCommand::two_ranks(const Invocation& invocation, Findings& findings) {
  try {
    const auto unseen = run_job({2, invocation.arguments, {}, nullptr}, invocation.jobs);
    const auto why = std::max_element(unseen.begin(), unseen.end())->get<std::string>();
    findings.say("dead ranks", why.empty()
                                   ? "ok: seen by the others"
                                   : fmt::format("MAY GO UNSEEN: {}; a death shows when a deadline passes "
                                                 "(TANDEM_OP_TIMEOUT_MS)",
                                                 why));
    return Support::yes();
  } catch (const Failure& failure) {
    if (failure.exit_code() > kInterrupted) throw;
    return Support::no(failure.error().text());
  }
}

/// Why it would not notice; empty if it would.
nlohmann::json DoctorCommand::run_rank(const RankContext& context, const Config& config) {
  Config quiet = config;
  quiet.log_level = LogLevel::kOff;  // the report says it
  const Session session(context, quiet, "doctor");
  session.meet("doctor");
  return sees_deaths(session.group()).why_not;
}

}  // namespace

std::unique_ptr<Command> make_doctor() {
  return std::make_unique<DoctorCommand>();
}

}  // namespace tandem::cli
