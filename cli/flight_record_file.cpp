#include "flight_record_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "failure.hpp"
#include "io/json_value.hpp"
#include "io/regular_file.hpp"
#include "io/text_cursor.hpp"

namespace tandem::cli {
namespace {

constexpr int kSchema = 1;
constexpr std::size_t kMostCalls = 2048;  // as RankFlightRecord has it

CallState state_of(const std::string& name) {
  constexpr std::array kStates = {CallState::kEntered, CallState::kAgreed, CallState::kEnqueued,
                                  CallState::kEnded, CallState::kRefused};
  for (const CallState state : kStates) {
    if (to_string(state) == name) return state;
  }
  throw std::runtime_error(fmt::format("unknown state '{}'", io::printable(name)));
}

/// Throws for what is no whole number of this type; get() would cut it.
template <class Number>
Number whole_number(const nlohmann::json& object, const char* name) {
  const nlohmann::json& value = object.at(name);
  const bool is_in_range = value.is_number_unsigned() ? std::in_range<Number>(value.get<std::uint64_t>())
                                                      : value.is_number_integer() &&
                                                            std::in_range<Number>(value.get<std::int64_t>());
  if (!is_in_range)
    throw std::runtime_error(fmt::format("{} is {}, need a whole number", name, io::shown(value)));
  return value.get<Number>();
}

std::uint64_t hexadecimal(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size())
    throw std::runtime_error(fmt::format("'{}' is no fingerprint", io::printable(text)));
  return value;
}

CallRecord call_of(const nlohmann::json& json) {
  return {.sequence = whole_number<std::uint64_t>(json, "sequence"),
          .fingerprint = hexadecimal(json.at("fingerprint").get<std::string>()),
          .op = json.at("op").get<std::string>(),
          .state = state_of(json.at("state").get<std::string>()),
          .entered_ns = whole_number<std::int64_t>(json, "entered_ns"),
          .agreed_ns = whole_number<std::int64_t>(json, "agreed_ns"),
          .enqueued_ns = whole_number<std::int64_t>(json, "enqueued_ns"),
          .ended_ns = whole_number<std::int64_t>(json, "ended_ns")};
}

FlightRecord record_of(const nlohmann::json& json) {
  if (json.at("schema") != kSchema)
    throw std::runtime_error(fmt::format("schema {}, need {}", io::shown(json.at("schema")), kSchema));
  const auto text_or_nothing = [](const nlohmann::json& value) {
    return value.is_null() ? std::string() : value.get<std::string>();
  };
  FlightRecord record{.group = json.at("group").get<std::string>(),
                      .error = text_or_nothing(json.at("error")),
                      .culprit = json.at("culprit").is_null() ? -1 : whole_number<int>(json, "culprit"),
                      .ranks = {}};
  for (const nlohmann::json& rank : json.at("ranks")) {
    RankFlightRecord& read = record.ranks.emplace_back();
    read.rank = whole_number<int>(rank, "rank");
    read.process = whole_number<std::int64_t>(rank, "process");
    read.has_left = rank.at("has_left").get<bool>();
    for (const nlohmann::json& call : rank.at("calls")) {
      if (read.calls.size() == kMostCalls)
        throw std::runtime_error(fmt::format("rank {} has more than {} calls", read.rank, kMostCalls));
      read.calls.push_back(call_of(call));
    }
  }
  return record;
}

}  // namespace

FlightRecord read_flight_record(const std::string& path) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 30;
  const std::string text = take_input(io::read_small_file(path, kMostBytes), path);
  const auto json = io::parse_json_object(text);
  if (!json) bad_input(fmt::format("{}: no flight record: {}", path, json.error().text()));
  try {
    return record_of(*json);
  } catch (const nlohmann::json::exception& error) {
    bad_input(fmt::format("{}: no flight record: {}", path, io::reason_of(error)));
  } catch (const std::runtime_error& error) {
    bad_input(fmt::format("{}: no flight record: {}", path, error.what()));
  }
}

std::string describe(const FlightRecord& record) {
  std::string text = fmt::format("group '{}', {} ranks{}\n", record.group, record.ranks.size(),
                                 record.error.empty() ? ": no error" : "");
  if (!record.error.empty()) {
    text += fmt::format("error: {}{}\n", record.error,
                        record.culprit < 0 ? "" : fmt::format(" (rank {})", record.culprit));
  }
  for (const RankFlightRecord& rank : record.ranks) {
    text += fmt::format("rank {} (pid {}{}): ", rank.rank, rank.process, rank.has_left ? ", had left" : "");
    if (rank.calls.empty()) {
      text += "no call\n";
      continue;
    }
    const CallRecord& last = rank.calls.back();
    text += fmt::format("{} calls, the last one #{} '{}': {}\n", rank.calls.size(), last.sequence, last.op,
                        to_string(last.state));
  }
  for (const RankFlightRecord& rank : record.ranks) {
    if (rank.rank == record.culprit && !rank.calls.empty())
      text += fmt::format("rank {} is at fault: it was in call #{} '{}'\n", rank.rank,
                          rank.calls.back().sequence, rank.calls.back().op);
  }
  const auto divergence = first_divergence(record);
  if (!divergence) return text + "all ranks have come as far as each other\n";
  return text + fmt::format("rank {} is the first that differs, at call #{}{}: {}\n", divergence->rank,
                            divergence->sequence,
                            divergence->op.empty() ? "" : fmt::format(" '{}'", divergence->op),
                            divergence->why);
}

}  // namespace tandem::cli
