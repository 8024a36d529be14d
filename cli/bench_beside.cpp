#include "bench_beside.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <tandem/base/time_text.hpp>
#include <tandem/gemm/mm.hpp>

#include "failure.hpp"
#include "harness/operands.hpp"
#include "harness/stopwatch.hpp"
#include "memory_need.hpp"
#include "row_file.hpp"
#include "session.hpp"
#include "timing.hpp"

namespace tandem::cli {
namespace {

constexpr const char* kBesideKey = "bench/beside";
constexpr std::int64_t kBesideColumns = 4096;  // of what travels

struct BesideRow {
  harness::ProductSizes product;
  DType dtype = DType::kBF16;
  std::int64_t mib = 1;
  bool symmetric = false;
};

std::vector<BesideRow> beside_rows(const BesideBench& bench) {
  std::vector<BesideRow> rows;
  for (const harness::ProductSizes& product : bench.products) {
    for (const DType dtype : bench.dtypes) {
      for (const std::int64_t mib : bench.mibs) {
        rows.push_back({product, dtype, mib, false});
        if (bench.op == CollectiveOp::kLowContentionAllGather) rows.push_back({product, dtype, mib, true});
      }
    }
  }
  return rows;
}

CollectiveCase case_of(const BesideBench& bench, const BesideRow& row, int world) {
  const std::int64_t rows = (row.mib << 20) / (kBesideColumns * size_bytes(row.dtype));
  return {.op = bench.op,
          .sizes = {rows * world, kBesideColumns},
          .dtype = row.dtype,
          .symmetric = row.symmetric};
}

/// How a product and collectives went side by side on one rank.
struct SideBySide {
  double product_us = 0;
  double num_calls = 0;  ///< collectives that ran while the product did, in parts
  double covered = 0;    ///< the share of the product's time in which they ran
};

/// A product on one stream, and collectives again and again on another.
class Pair {
 public:
  Pair(const BesideBench& bench, const BesideRow& row, const Session& session);

  void product(Stream& stream) const {
    take(gemm::mm({.a = a_.view(), .b = b_.view(), .out = out_.view(), .bias = {}}, stream));
  }
  void collective(bool is_ordinary, Stream& stream) const {
    return is_ordinary ? collective_.enqueue_ordinary(stream) : collective_.enqueue(stream);
  }
  [[nodiscard]] SideBySide side_by_side(bool is_ordinary, double product_us, double collective_us,
                                        const harness::Stopwatch& stopwatch);
  /// Of work on the session's stream, between two events.
  [[nodiscard]] double alone_us(const std::function<void()>& enqueue,
                                const harness::Stopwatch& stopwatch) const;
  void poison() const { collective_.poison(); }
  void check(harness::Wrong& wrong) const { collective_.check(wrong); }

 private:
  [[nodiscard]] Event& mark(std::size_t idx);

  const Session& session_;
  RankCollective collective_;
  harness::GuardedTensor a_;
  harness::GuardedTensor b_;
  harness::GuardedTensor out_;
  std::unique_ptr<Stream> beside_;
  std::unique_ptr<Event> begin_;
  std::unique_ptr<Event> end_;
  std::vector<std::unique_ptr<Event>> marks_;  ///< between collectives
};

Pair::Pair(const BesideBench& bench, const BesideRow& row, const Session& session)
    : session_(session), collective_(case_of(bench, row, session.size()), session) {
  constexpr int kMostUrgent = -100;
  Device& device = session.device();
  a_ = harness::GuardedTensor(device, Dims{row.product.m, row.product.k}, row.dtype);
  b_ = harness::GuardedTensor(device, Dims{row.product.k, row.product.n}, row.dtype);
  out_ = harness::GuardedTensor(device, Dims{row.product.m, row.product.n}, row.dtype);
  harness::generate({.seed = 11, .sizes = a_.host().sizes}, a_.host());
  harness::generate({.seed = 12, .sizes = b_.host().sizes}, b_.host());
  a_.upload();
  b_.upload();
  collective_.fill();
  beside_ = take(device.create_stream(kMostUrgent));
  begin_ = take(device.create_event());
  end_ = take(device.create_event());
}

double Pair::alone_us(const std::function<void()>& enqueue, const harness::Stopwatch& stopwatch) const {
  Stream& stream = session_.stream();
  stopwatch.stand_ready();
  take(stream.record(*begin_));
  enqueue();
  take(stream.record(*end_));
  take(stream.synchronize());
  return take(end_->elapsed_us(*begin_));
}

Event& Pair::mark(std::size_t idx) {
  while (marks_.size() <= idx) marks_.push_back(take(session_.device().create_event()));
  return *marks_[idx];
}

// The collectives begin first, since a product that begins with them takes all multiprocessors before their
// first kernel. They go on until it has ended for sure.
SideBySide Pair::side_by_side(bool is_ordinary, double product_us, double collective_us,
                              const harness::Stopwatch& stopwatch) {
  constexpr int kFirstCalls = 3;
  constexpr double kMostCalls = 300;
  Stream& stream = session_.stream();
  const double lead_us = std::max(100.0, 1.5 * collective_us);
  const auto num_calls = static_cast<std::size_t>(
      std::clamp((lead_us + 2.5 * product_us) / collective_us, kFirstCalls + 1.0, kMostCalls));
  stopwatch.stand_ready();
  take(beside_->wait(stream));
  take(beside_->record(mark(0)));
  for (std::size_t i = 0; i < num_calls; ++i) {
    if (i == kFirstCalls) {
      take(stream.sleep(std::chrono::nanoseconds(std::llround(lead_us * 1000))));
      take(stream.record(*begin_));
      product(stream);
      take(stream.record(*end_));
    }
    collective(is_ordinary, *beside_);
    take(beside_->record(mark(i + 1)));
  }
  take(stream.synchronize());
  take(beside_->synchronize());
  const double begin = take(begin_->elapsed_us(mark(0)));
  const double end = take(end_->elapsed_us(mark(0)));
  SideBySide found{.product_us = end - begin};
  double call_begin = 0;
  for (std::size_t i = 0; i < num_calls; ++i) {
    const double call_end = take(mark(i + 1).elapsed_us(mark(0)));
    const double common = std::min(end, call_end) - std::max(begin, call_begin);
    if (common > 0) {
      found.num_calls += common / (call_end - call_begin);
      found.covered += common / found.product_us;
    }
    call_begin = call_end;
  }
  return found;
}

/// Lists of what each round gave.
class Times {
 public:
  void add(const std::string& name, double value) { lists_[name].push_back(value); }
  [[nodiscard]] nlohmann::json take_all() { return std::move(lists_); }

 private:
  nlohmann::json lists_ = nlohmann::json::object();
};

void add_side_by_side(const std::string& suffix, const SideBySide& found, Times& times) {
  times.add("gemm_beside" + suffix, found.product_us);
  times.add("calls_beside" + suffix, found.num_calls);
  times.add("covered" + suffix, found.covered);
}

void check_results(bool is_ordinary, Pair& pair, const Session& session, harness::Wrong& wrong) {
  pair.poison();
  session.meet("bench check");
  pair.collective(is_ordinary, session.stream());
  session.finish();
  pair.check(wrong);
}

}  // namespace

nlohmann::json measure_beside(const BesideBench& bench, const RankContext& context, const Config& config) {
  const auto idx = receive(context, kBesideKey).get<std::size_t>();
  const BesideRow row = beside_rows(bench)[idx];
  const Session session(context, config, "bench");
  Pair pair(bench, row, session);
  harness::Wrong wrong;
  pair.product(session.stream());
  for (const bool is_ordinary : {false, true}) check_results(is_ordinary, pair, session, wrong);
  const harness::Stopwatch stopwatch(session.device(), session.group(), session.stream());
  const auto slowest = [&](double own) {
    const std::vector<double> all = session.exchange(own, "bench beside");
    return *std::max_element(all.begin(), all.end());
  };
  Times times;
  // Of all ranks; what is beside has to last, so the least counts.
  double least_comm_us = std::numeric_limits<double>::max();
  double least_ordinary_us = std::numeric_limits<double>::max();
  for (int round = -bench.counts.warmup; round < bench.counts.iterations; ++round) {
    Times ignored;
    Times& kept = round < 0 ? ignored : times;
    const double gemm_us = pair.alone_us([&] { pair.product(session.stream()); }, stopwatch);
    kept.add("gemm", gemm_us);
    const double longest_us = slowest(gemm_us);
    for (const bool is_ordinary : {false, true}) {
      const std::string suffix = is_ordinary ? "_ordinary" : "";
      const double comm_us =
          pair.alone_us([&] { pair.collective(is_ordinary, session.stream()); }, stopwatch);
      kept.add("comm" + suffix, comm_us);
      double& least_us = is_ordinary ? least_ordinary_us : least_comm_us;
      least_us = std::min(least_us, slowest(comm_us));
      add_side_by_side(suffix, pair.side_by_side(is_ordinary, longest_us, least_us, stopwatch), kept);
    }
  }
  for (const bool is_ordinary : {false, true}) check_results(is_ordinary, pair, session, wrong);
  return {{"times", times.take_all()},
          {"wrong", wrong.count},
          {"first_wrong", wrong.first},
          {"barriers", take(coll::low_contention_barriers(session.group(), session.stream()))}};
}

namespace {

nlohmann::json summarize(const BesideBench& bench, const BesideRow& row, const JobPlace& place,
                         const std::vector<nlohmann::json>& results) {
  const auto typical = [&](const std::string& name) {
    return harness::median(slowest_rank(results, "/times/" + name));
  };
  const auto fewest = [&](const std::string& name) {
    double least = std::numeric_limits<double>::max();
    for (const auto& result : results)
      least = std::min(least, harness::median(result.at("times").at(name).get<std::vector<double>>()));
    return least;
  };
  nlohmann::json json{{"op", to_string(bench.op)},
                      {"beside", "mm"},
                      {"mib", row.mib},
                      {"memory", row.symmetric ? "symmetric" : "ordinary"},
                      {"m", row.product.m},
                      {"n", row.product.n},
                      {"k", row.product.k},
                      {"dtype", tandem::to_string(row.dtype)},
                      {"world", place.ranks},
                      {"by", place.placement.kind == DeviceKind::kCpu ? "cores"
                             : place.placement.loopback               ? "kernels"
                                                                      : "copy engines"},
                      {"barriers", results[0].at("barriers")},
                      {"t_gemm_us", typical("gemm")}};
  for (const char* suffix : {"", "_ordinary"}) {
    const std::string of = suffix;
    json["t_comm" + of + "_us"] = typical("comm" + of);
    json["t_gemm_beside" + of + "_us"] = typical("gemm_beside" + of);
    const double num_calls = fewest("calls_beside" + of);
    json["calls_beside" + of] = num_calls;
    json["t_comm_beside" + of + "_us"] =
        num_calls > 0 ? nlohmann::json(typical("gemm_beside" + of) / num_calls) : nlohmann::json();
    json["covered" + of] = fewest("covered" + of);
    json["slowdown" + of] = typical("gemm_beside" + of) / typical("gemm");
  }
  json["wrong"] = 0;
  for (const auto& result : results)
    json["wrong"] = json["wrong"].get<std::int64_t>() + result.at("wrong").get<std::int64_t>();
  return json;
}

void print_row(const nlohmann::json& row) {
  const auto time = [&](const std::string& key) {
    return row.at(key).is_null() ? std::string("-") : time_text(row.at(key).get<double>());
  };
  for (const char* suffix : {"", "_ordinary"}) {
    const std::string of = suffix;
    fmt::print("  {:>28} {:>9} {:>5} {:>9} {:>9} {:>11} {:>11} {:>8.3f} {:>6.2f} {:>7.2f}\n",
               of.empty() ? row.at("op").get<std::string>() : std::string("ordinary"),
               row.at("memory").get<std::string>(), row.at("mib").get<std::int64_t>(), time("t_gemm_us"),
               time("t_comm" + of + "_us"), time("t_gemm_beside" + of + "_us"),
               time("t_comm_beside" + of + "_us"), row.at("slowdown" + of).get<double>(),
               row.at("calls_beside" + of).get<double>(), row.at("covered" + of).get<double>());
  }
  std::fflush(stdout);
}

}  // namespace

void check_memory_need(const BesideBench& bench, int ranks) {
  for (const BesideRow& row : beside_rows(bench)) {
    // On one side of the collective are the parts of all ranks, on the other is one.
    const std::int64_t travels = times_bytes(ranks + 1, row.mib << 20);
    check_memory_need(fmt::format("bench on {} ranks", ranks),
                      times_bytes(ranks, sum_of_bytes({travels, bytes_of_product(row.product, row.dtype)})));
  }
}

int bench_beside(const BesideBench& bench, const RowFile& file, const Invocation& invocation,
                 const JobPlace& place) {
  const std::vector<BesideRow> rows = beside_rows(bench);
  fmt::print("# {:>28} {:>9} {:>5} {:>9} {:>9} {:>11} {:>11} {:>8} {:>6} {:>7}\n", "op", "memory", "MiB",
             "t_gemm", "t_comm", "gemm beside", "comm beside", "slowdown", "calls", "covered");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto tell_row = [&](Store& store) { send_to_ranks(store, kBesideKey, i); };
    const auto results =
        run_job({place.ranks, invocation.arguments, place.placement, tell_row}, invocation.jobs);
    nlohmann::json row = summarize(bench, rows[i], place, results);
    if (row.at("wrong") != 0) {
      const auto culprit =
          std::find_if(results.begin(), results.end(), [](const auto& r) { return r.at("wrong") != 0; });
      throw Failure(kFailed, Error(ErrorCode::kNumeric,
                                   fmt::format("bench: wrong result: {}",
                                               culprit->at("first_wrong").template get<std::string>())));
    }
    print_row(row);
    add_circumstances(row, invocation, place);
    file.append(row);
  }
  return kOk;
}

}  // namespace tandem::cli
