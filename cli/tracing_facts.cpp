#include "tracing_facts.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <tandem/backend/backend.hpp>
#include <tandem/gemm/async_input_mm.hpp>

#include "backend/for_tools.hpp"

namespace tandem::cli {
namespace {

/// The clock of a device's stamps, and whether waits inside of its products are seen; of the first GPU also
/// whether a tool listens to ranges.
void add_device(const Config& config, DeviceId id, std::vector<TracingFact>& facts) {
  const std::string name = to_string(id);
  const auto device = open_device(id, config);
  const auto clock = device ? report_clock(**device) : tl::unexpected(device.error());
  if (!clock) {
    facts.push_back({.name = name, .text = clock.error().text()});
    return;
  }
  facts.push_back({.name = name,
                   .works = true,
                   .text = fmt::format("times by {}, ± {:.3f} us", clock->clock,
                                       static_cast<double>(clock->uncertainty_ns) / 1e3),
                   .more = {{"clock", clock->clock},
                            {"uncertainty_us", static_cast<double>(clock->uncertainty_ns) / 1e3}}});
  const gemm::AsyncInputProblem problem{.m = 1024, .n = 1024, .k = 1024, .chunks = 2};
  const Support notes = gemm::can_run(problem, **device);
  facts.push_back({.name = name + " waits",
                   .works = notes.ok,
                   .text = notes.ok ? "native products note their waits, chunk by chunk"
                                    : "no product here waits for chunks: " + notes.why_not});
  if (id != DeviceId{DeviceKind::kCuda, 0}) return;
  const bool listens = has_profiler(**device);
  facts.push_back(
      {.name = "NVTX",
       .works = listens,
       .text = listens ? "a tool listens to the ranges of ops, steps and ranks" : "no tool listens",
       .remedy = listens ? "" : "start the program by a profiler: nsys profile --trace=cuda,nvtx"});
}

/// As a shell finds it.
std::optional<std::string> find_program(const std::string& program) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> shell(
      ::popen(("command -v " + program + " 2>/dev/null").c_str(), "r"), ::pclose);
  std::array<char, 4096> line{};
  if (!shell || std::fgets(line.data(), line.size(), shell.get()) == nullptr) return std::nullopt;
  std::string file = line.data();
  if (!file.empty() && file.back() == '\n') file.pop_back();
  return file;
}

void add_program(const std::string& program, const std::string& shows, const std::string& package,
                 std::vector<TracingFact>& facts) {
  const auto file = find_program(program);
  facts.push_back({.name = program,
                   .works = file.has_value(),
                   .text = file ? fmt::format("{}, {}", *file, shows) : "not in PATH",
                   .remedy = file ? "" : fmt::format("install {} from NVIDIA's CUDA repository", package)});
}

/// The number that `file` has, on a line that begins with `key` where that is not empty.
std::optional<int> number_in(const char* file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(key, 0) != 0) continue;
    std::istringstream text(line.substr(key.size()));
    int number = 0;
    if (text >> number) return number;
  }
  return std::nullopt;
}

void add_perf_events(std::vector<TracingFact>& facts) {
  constexpr const char* kFile = "/proc/sys/kernel/perf_event_paranoid";
  constexpr int kMost = 2;  // of which nsys samples the processors of its own processes
  const auto level = number_in(kFile, "");
  const bool works = level && (*level <= kMost || ::geteuid() == 0);
  facts.push_back(
      {.name = "perf events",
       .works = works,
       .text = level ? fmt::format("perf_event_paranoid is {}{}", *level,
                                   works ? "" : ", profilers cannot sample processors")
                     : fmt::format("{} cannot be read: this kernel has no perf events", kFile),
       .remedy = works || !level ? "" : fmt::format("sudo sysctl kernel.perf_event_paranoid={}", kMost),
       .more = level ? nlohmann::json{{"perf_event_paranoid", *level}} : nlohmann::json::object()});
}

/// Whether ncu may read the counters of a GPU.
void add_counters(std::vector<TracingFact>& facts) {
  const auto admin_only = number_in("/proc/driver/nvidia/params", "RmProfilingAdminOnly:");
  if (!admin_only) return;  // without the driver's file nobody knows
  const bool works = *admin_only == 0 || ::geteuid() == 0;
  facts.push_back({.name = "counters",
                   .works = works,
                   .text = works ? "ncu may read counters of GPUs" : "counters of GPUs are root's alone",
                   .remedy = works ? ""
                                   : "put 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' into "
                                     "/etc/modprobe.d/nvidia.conf and load the driver anew"});
}

}  // namespace

std::vector<TracingFact> profiler_facts(const Machine& machine) {
  std::vector<TracingFact> facts;
  if (!machine.gpus.empty()) {
    add_program("nsys", "shows ranges beside kernels and copies", "cuda-nsight-systems-13-0", facts);
    add_program("ncu", "shows what holds a kernel up", "cuda-nsight-compute-13-0", facts);
    add_counters(facts);
  }
  add_perf_events(facts);
  return facts;
}

std::vector<TracingFact> device_facts(const Config& config, const Machine& machine) {
  std::vector<TracingFact> facts;
  add_device(config, {DeviceKind::kCpu, 0}, facts);
  for (std::size_t i = 0; i < machine.gpus.size(); ++i)
    add_device(config, {DeviceKind::kCuda, static_cast<int>(i)}, facts);
  return facts;
}

std::string to_text(const TracingFact& fact) {
  return fmt::format("{}: {}{}", fact.name, fact.text,
                     fact.remedy.empty() ? "" : "; to change that: " + fact.remedy);
}

nlohmann::json to_json(const TracingFact& fact) {
  nlohmann::json json = fact.more;
  json["name"] = fact.name;
  json["works"] = fact.works;
  json["text"] = fact.text;
  json["remedy"] = fact.remedy;
  return json;
}

}  // namespace tandem::cli
