#include <tandem/trace/page.hpp>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "trace/calls.hpp"
#include "trace/intervals.hpp"
#include "trace/lanes.hpp"
#include "trace/page_template.hpp"

namespace tandem::trace {
namespace {

using Json = nlohmann::ordered_json;

/// As a JSON string, whatever its bytes.
std::string json_text(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// us with all digits of the ns.
std::string us_text(std::int64_t ns) {
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000);
}

/// Writes the events of one rank, a line each.
class EventWriter {
 public:
  EventWriter(const RankEvents& rank, std::int64_t origin_ns, std::string& out)
      : rank_(rank), origin_ns_(origin_ns), out_(out) {
    for (const Call& call : rank.calls) calls_[call.number] = &call;
  }

  void write();

 private:
  void line(const std::string& text) {
    if (out_.back() != '[') out_ += ',';
    out_ += '\n';
    out_ += text;
  }
  void metadata(const char* name, int tid, const std::string& args) {
    line(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{{}}}}})", name, rank_.rank, tid,
                     args));
  }
  void event(const Event& event, int tid);
  /// Written once.
  const std::string& text(TextId id) {
    std::string& known = json_texts_[id];
    if (known.empty()) known = json_text(rank_.text(id));
    return known;
  }

  const RankEvents& rank_;
  const std::int64_t origin_ns_;
  std::string& out_;
  std::map<std::int32_t, const Call*> calls_;
  std::map<TextId, std::string> json_texts_;
};

void EventWriter::write() {
  const LaneList lanes = lanes_of(rank_);
  metadata("process_name", 0, fmt::format(R"("name":"rank {}")", rank_.rank));
  metadata("process_sort_index", 0, fmt::format(R"("sort_index":{})", rank_.rank));
  for (std::size_t i = 0; i < lanes.names.size(); ++i) {
    const int tid = static_cast<int>(i) + 1;
    metadata("thread_name", tid, fmt::format(R"("name":{})", json_text(lanes.names[i])));
    metadata("thread_sort_index", tid, fmt::format(R"("sort_index":{})", tid));
  }
  for (std::size_t i = 0; i < rank_.events.size(); ++i) event(rank_.events[i], lanes.of_event[i] + 1);
}

void EventWriter::event(const Event& event, int tid) {
  const auto call = calls_.find(event.call);
  const TextId op = call == calls_.end() ? kNoText : call->second->op;
  std::string args = fmt::format(R"("step":{},"call":{})", text(event.step), event.call);
  const auto add_number = [&](const char* key, std::int64_t value) {
    args += fmt::format(R"(,"{}":{})", key, value);
  };
  const auto add_text = [&](const char* key, TextId id) {
    if (id != kNoText) args += fmt::format(R"(,"{}":{})", key, text(id));
  };
  if (event.peer >= 0) add_number("peer", event.peer);
  if (event.chunk >= 0) add_number("chunk", event.chunk);
  if (event.bytes > 0) add_number("bytes", event.bytes);
  if (event.meeting >= 0) add_number("meeting", event.meeting);
  if (call != calls_.end()) add_text("algorithm", call->second->algorithm);
  add_text("stream", event.stream);
  add_text("notation", event.notation);
  line(fmt::format(R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
                   text(op), to_string(event.category), rank_.rank, tid, us_text(event.begin_ns - origin_ns_),
                   us_text(event.end_ns - event.begin_ns), args));
}

Json calls_json(const Trace& trace, std::int64_t origin_ns) {
  Json calls = Json::array();
  for (const auto& [call, span] : timed_calls(trace)) {
    const RankEvents& rank = trace.front();
    calls.push_back({{"call", call.number},
                     {"op", rank.text(call.op)},
                     {"algorithm", rank.text(call.algorithm)},
                     {"begin_us", us(span.begin - origin_ns)},
                     {"end_us", us(span.end - origin_ns)},
                     {"schedule", rank.text(call.schedule)}});
  }
  return calls;
}

void add_sums(Json& one, const TimeSums& sums) {
  one["busy_us"] = sums.busy_us;
  one["product_us"] = sums.product_us;
  one["communication_us"] = sums.communication_us;
  one["hidden_us"] = sums.hidden_us;
  one["hidden_share"] = nullptr;
  if (const auto share = sums.hidden_share()) one["hidden_share"] = *share;
  one["waiting_us"] = sums.waiting_us;
  if (sums.between_hosts_us <= 0) return;
  one["between_hosts_us"] = sums.between_hosts_us;
  one["between_hosts_hidden_us"] = sums.between_hosts_hidden_us;
}

Json ranks_json(const Summary& summary) {
  Json ranks = Json::array();
  for (const RankSummary& rank : summary.ranks) {
    Json& one = ranks.emplace_back(Json{{"rank", rank.rank}});
    add_sums(one, rank);
  }
  return ranks;
}

Json ops_json(const Summary& summary) {
  Json ops = Json::array();
  for (const OpSummary& op : summary.ops) {
    Json& one = ops.emplace_back(Json{{"op", op.op},
                                      {"algorithm", op.algorithm},
                                      {"calls", op.num_calls},
                                      {"median_us", op.median_us},
                                      {"mean_us", op.mean_us}});
    add_sums(one, op);
  }
  return ops;
}

Json losses_json(const Summary& summary) {
  Json losses = Json::array();
  for (const Loss& loss : summary.losses) {
    losses.push_back({{"rank", loss.rank},
                      {"call", loss.call},
                      {"what", loss.what},
                      {"us", loss.us},
                      {"waited_for", nullptr},
                      {"because", loss.because},
                      {"ts", us(loss.begin_ns - summary.begin_ns)},
                      {"dur", us(loss.end_ns - loss.begin_ns)}});
    if (loss.waited_for >= 0) losses.back()["waited_for"] = loss.waited_for;
  }
  return losses;
}

Json about_json(const Trace& trace, const Summary& summary, const Origin& origin) {
  std::int64_t num_dropped = 0;
  std::int64_t num_unseen = 0;
  std::int64_t uncertainty_ns = 0;
  for (const RankEvents& rank : trace) {
    num_dropped += rank.num_dropped;
    num_unseen = std::max(num_unseen, rank.num_unseen_calls);
    uncertainty_ns = std::max(uncertainty_ns, rank.uncertainty_ns);
  }
  const RankEvents none;
  const RankEvents& first = trace.empty() ? none : trace.front();
  Json about{
      {"version", 1},
      {"command", origin.command},
      {"date", origin.date},
      {"machine", origin.machine},
      {"device", first.device},
      {"backend", first.backend},
      {"world", trace.size()},
      {"clock",
       {{"source", first.clock}, {"uncertainty_us", us(uncertainty_ns)}, {"origin_ns", summary.begin_ns}}},
      {"dropped_events", num_dropped},
      {"unseen_calls", num_unseen},
      {"calls", calls_json(trace, summary.begin_ns)},
      {"ranks", ranks_json(summary)},
      {"ops", ops_json(summary)},
      {"slowest_rank", nullptr},
      {"losses", losses_json(summary)}};
  if (summary.slowest_rank >= 0) about["slowest_rank"] = summary.slowest_rank;
  return about;
}

}  // namespace

std::string to_json(const Trace& trace, const Summary& summary, const Origin& origin) {
  std::string out = R"({"traceEvents":[)";
  for (const RankEvents& rank : trace) EventWriter(rank, summary.begin_ns, out).write();
  out += "\n],\n\"displayTimeUnit\":\"ms\",\n\"tandem\":";
  out += about_json(trace, summary, origin).dump(1, ' ', false, Json::error_handler_t::replace);
  out += "}\n";
  return out;
}

std::string to_html(std::string_view json) {
  constexpr std::string_view kPlace = "/*TANDEM_TRACE_JSON*/null";
  const std::string_view page = page_template();
  const std::size_t place = page.find(kPlace);
  std::string html(page.substr(0, place));
  // In strings only. So no text ends the page's script.
  for (const char c : json) {
    if (c == '<') {
      html += "\\u003c";
    } else {
      html += c;
    }
  }
  html += page.substr(place + kPlace.size());
  return html;
}

}  // namespace tandem::trace
