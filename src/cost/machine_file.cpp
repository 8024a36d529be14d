#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tandem/cost/machine_file.hpp>
#include <type_traits>
#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"
#include "cost/built_in_machines.hpp"
#include "cost/machine_rates.hpp"
#include "io/json_value.hpp"
#include "io/text_cursor.hpp"

namespace tandem::cost {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr double kLeast = 1e-6;
constexpr double kMost = 1e12;
constexpr std::size_t kMostText = 2000;  // of a source or a note

/// Calls `visit(name, rate)` for every rate of `gpu`, which is a GpuRates or a const one.
template <class Rates, class Visit>
void visit_rates(Rates& gpu, Visit visit) {
  visit("multiprocessors", gpu.multiprocessors);
  visit("tile_us", gpu.tile_us);
  visit("column_us", gpu.column_us);
  visit("vendor_launch_us", gpu.vendor.launch_us);
  visit("vendor_begin_us", gpu.vendor.begin_us);
  visit("vendor_slowness", gpu.vendor_slowness);
  visit("vendor_read_bytes_per_us", gpu.vendor_read_bytes_per_us);
  visit("vendor_split_us", gpu.vendor_split_us);
  visit("native_launch_us", gpu.native.launch_us);
  visit("native_begin_us", gpu.native.begin_us);
  visit("native_slowness_bf16", gpu.native_slowness.bf16);
  visit("native_slowness_f16", gpu.native_slowness.f16);
  visit("native_slowness_f8", gpu.native_slowness.f8);
  visit("read_bytes_per_us", gpu.read_bytes_per_us);
  visit("native_unpaired", gpu.native_unpaired);
  visit("half_flops_per_us", gpu.half_flops_per_us);
  visit("eighth_flops_per_us", gpu.eighth_flops_per_us);
  visit("full_flops_per_us", gpu.full_flops_per_us);
  visit("link_bytes_per_us", gpu.link_bytes_per_us);
  visit("pull_start_us", gpu.pull_start_us);
  visit("pull_slowness", gpu.pull_slowness);
  visit("push_start_us", gpu.push_start_us);
  visit("push_us", gpu.push_us);
  visit("recorded_scale_us", gpu.recorded_scale_us);
  visit("piece_bytes_per_us", gpu.piece_bytes_per_us);
  visit("first_piece_us", gpu.first_piece_us);
  visit("first_wave_bytes_per_us", gpu.first_wave_bytes_per_us);
  visit("later_wave_bytes_per_us", gpu.later_wave_bytes_per_us);
  visit("sender_round_us", gpu.sender_round_us);
  visit("sender_bytes_per_us", gpu.sender_bytes_per_us);
  visit("partial_bytes_per_ns", gpu.partial_bytes_per_ns);
  visit("partial_bytes_per_us", gpu.partial_bytes_per_us);
  visit("owner_us", gpu.owner_us);
  visit("owner_column_us", gpu.owner_column_us);
  visit("mailboxes_start_us", gpu.by_mailboxes.start_us);
  visit("mailboxes_slowness", gpu.by_mailboxes.slowness);
  visit("gather_start_us", gpu.gather.start_us);
  visit("gather_slowness", gpu.gather.slowness);
  visit("gather_slowness_of_a_peer", gpu.gather.slowness_of_a_peer);
  visit("sum_start_us", gpu.sum.start_us);
  visit("sum_slowness", gpu.sum.slowness);
  visit("put_us", gpu.put_us);
  visit("put_cut_us", gpu.put_cut_us);
  visit("memory_bytes_per_us", gpu.memory_bytes_per_us);
  visit("barrier_us", gpu.barrier_us);
  visit("cut_us", gpu.cut_us);
}

Result<std::string> text_at(const json& object, const char* key, bool may_be_empty) {
  TANDEM_ASSIGN(std::string text, io::text_at(object, key));
  if (text.size() > kMostText)
    return failf(ErrorCode::kParse, "{} has {} bytes, need at most {}", key, text.size(), kMostText);
  if (!may_be_empty && text.find_first_not_of(' ') == std::string::npos)
    return failf(ErrorCode::kParse, "{} is empty", key);
  return text;
}

Result<void> check_keys(const json& object, std::span<const std::string_view> known) {
  if (!object.is_object()) return failf(ErrorCode::kParse, "found {}, need an object", io::shown(object));
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      return failf(ErrorCode::kParse, "an unknown key '{}': there are {}", io::printable(key, 40),
                   fmt::join(known, ", "));
  }
  return {};
}

Result<MachineRate> rate_of(const std::string& name, const json& entry) {
  static constexpr std::string_view kKeys[] = {"value", "source"};
  TANDEM_TRY(check_keys(entry, kKeys));
  const json& value = entry.at("value");
  const double number = value.is_number() ? value.get<double>() : 0;
  if (!(number >= kLeast && number <= kMost))
    return failf(ErrorCode::kParse, "value is {}, need {} to {}", io::shown(value), kLeast, kMost);
  if (name == "multiprocessors" && (number != std::floor(number) || number > 4096))
    return failf(ErrorCode::kParse, "value is {}, need a whole number up to 4096", io::shown(value));
  TANDEM_ASSIGN(std::string source, text_at(entry, "source", false));
  return MachineRate{.name = name, .value = number, .source = std::move(source)};
}

Result<MachineRate> find_rate(const json& rates, std::string_view name) {
  const auto found = rates.find(name);
  if (found == rates.end())
    return failf(ErrorCode::kParse, "the rate {} is missing: see docs/guide/planning.md", name);
  try {
    auto rate = rate_of(std::string(name), *found);
    if (!rate) return failf(ErrorCode::kParse, "rate {}: {}", name, rate.error().text());
    return rate;
  } catch (const json::exception& error) {
    return failf(ErrorCode::kParse, "rate {}: {}", name, io::reason_of(error));
  }
}

Result<Machine> machine_of(const json& value) {
  static constexpr std::string_view kKeys[] = {"format", "gpu", "note", "rates"};
  TANDEM_TRY(check_keys(value, kKeys));
  if (value.at("format") != kFormat)
    return failf(ErrorCode::kParse, "format {}, need {}", io::shown(value.at("format")), kFormat);
  Machine machine;
  TANDEM_ASSIGN(machine.gpu, text_at(value, "gpu", false));
  if (value.contains("note")) {
    TANDEM_ASSIGN(machine.note, text_at(value, "note", true));
  }
  const json& rates = value.at("rates");
  TANDEM_TRY(check_keys(rates, machine_rate_names()));
  for (const std::string_view name : machine_rate_names()) {
    TANDEM_ASSIGN(MachineRate rate, find_rate(rates, name));
    machine.rates.push_back(std::move(rate));
  }
  return machine;
}

}  // namespace

const MachineRate* Machine::find(std::string_view name) const {
  const auto found =
      std::find_if(rates.begin(), rates.end(), [&](const MachineRate& rate) { return rate.name == name; });
  return found == rates.end() ? nullptr : &*found;
}

MachineRate* Machine::find(std::string_view name) {
  return const_cast<MachineRate*>(std::as_const(*this).find(name));
}

std::span<const std::string_view> machine_rate_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    visit_rates(kH200, [&](std::string_view name, const auto&) { all.push_back(name); });
    return all;
  }();
  return names;
}

Machine reference_machine() {
  Machine machine{
      .gpu = "NVIDIA H200", .note = "what `auto` predicts with where nothing was measured", .rates = {}};
  visit_rates(kH200, [&](std::string_view name, const auto& rate) {
    machine.rates.push_back({.name = std::string(name),
                             .value = static_cast<double>(rate),
                             .source = "the table of the library, src/cost/machine.hpp"});
  });
  return machine;
}

Result<GpuRates> gpu_rates_of(const Machine& machine) {
  GpuRates gpu = kH200;
  std::string_view missing;
  visit_rates(gpu, [&](std::string_view name, auto& rate) {
    const MachineRate* const found = machine.find(name);
    if (found == nullptr) {
      missing = name;
    } else {
      rate = static_cast<std::decay_t<decltype(rate)>>(found->value);
    }
  });
  if (missing.empty()) return gpu;
  return failf(ErrorCode::kInvalidArgument, "the machine '{}' has no rate {}", io::printable(machine.gpu, 80),
               missing);
}

Result<Machine> parse_machine(std::string_view text) {
  TANDEM_ASSIGN(const json value, io::parse_json_object(text));
  try {
    return machine_of(value);
  } catch (const json::exception& error) {
    return fail(ErrorCode::kParse, io::reason_of(error));
  }
}

std::string to_text(const Machine& machine) {
  const auto quoted = [](const std::string& text) {
    return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  };
  std::string text = fmt::format("{{\n  \"format\": {},\n  \"gpu\": {},\n  \"note\": {},\n  \"rates\": {{",
                                 kFormat, quoted(machine.gpu), quoted(machine.note));
  const char* separator = "";
  for (const std::string_view name : machine_rate_names()) {
    const MachineRate* const rate = machine.find(name);
    if (rate == nullptr) continue;
    text += fmt::format("{}\n    \"{}\": {{\"value\": {}, \"source\": {}}}", separator, name,
                        fmt::format("{:.12g}", rate->value), quoted(rate->source));
    separator = ",";
  }
  return text + "\n  }\n}\n";
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const BuiltInMachine& one : built_in_machines()) names.emplace_back(one.name);
  return names;
}

Result<Machine> find_machine(std::string_view name) {
  for (const BuiltInMachine& one : built_in_machines()) {
    if (one.name != name) continue;
    auto machine = parse_machine(one.text);
    if (!machine) return failf(ErrorCode::kInternal, "the machine {}: {}", name, machine.error().text());
    return machine;
  }
  return failf(ErrorCode::kInvalidArgument, "an unknown GPU '{}': there are {}", io::printable(name, 40),
               fmt::join(machine_names(), ", "));
}

}  // namespace tandem::cost
