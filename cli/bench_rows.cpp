#include "bench_rows.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <optional>

#include "failure.hpp"
#include "harness/problem.hpp"
#include "io/json_value.hpp"
#include "io/regular_file.hpp"

namespace tandem::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kMostBytes = std::size_t{64} << 20;

std::optional<ForecastOp> op_of(const json& row) {
  const json& name = row.at("op");
  if (name == "all_gather_matmul") return ForecastOp::kAllGatherMatmul;
  if (name == "matmul_reduce_scatter") return ForecastOp::kMatmulReduceScatter;
  if (name == "matmul_all_reduce") return ForecastOp::kMatmulAllReduce;
  return std::nullopt;
}

/// Nothing for scales that no model covers.
std::optional<ScaleMode> scales_of(const json& row) {
  const json scales = row.value("scales", json());
  if (scales.is_null()) return ScaleMode::kNone;
  if (scales == "tensor") return ScaleMode::kTensorwise;
  if (scales == "row") return ScaleMode::kRowwiseSharded;
  return std::nullopt;
}

/// Whether the times are those of the op alone, on a GPU of one host for each rank.
bool is_undisturbed(const json& row) {
  return row.contains("gpu") && row.at("gpu").is_string() && row.contains("t_fused_us") &&
         !row.value("loopback", false) && row.value("link_delay_us", 0.0) == 0 &&
         row.value("load_ms", 0.0) == 0 && !row.value("nan_check", false) && row.value("hosts", 1) == 1 &&
         row.at("world").get<int>() > 1;
}

void add_times(const json& row, MeasuredRow& measured) {
  measured.product_us = row.at("t_gemm_us").get<double>();
  measured.us.emplace_back(Algorithm::kSerial, row.at("t_serial_us").get<double>());
  const std::string ran = row.at("algorithm").get<std::string>();
  const json all = row.value("t_algorithms_us", json());
  for (const Algorithm algorithm : {Algorithm::kPipelined, Algorithm::kNative}) {
    const std::string name(to_string(algorithm));
    if (all.is_object() && all.contains(name)) {
      measured.us.emplace_back(algorithm, all.at(name).get<double>());
    } else if (ran == name) {
      measured.us.emplace_back(algorithm, row.at("t_fused_us").get<double>());
    }
  }
}

/// Throws json::exception for what is missing or of another type.
std::optional<MeasuredRow> row_of(const json& row) {
  if (!row.contains("op") || !is_undisturbed(row)) return std::nullopt;
  const auto op = op_of(row);
  const auto scales = scales_of(row);
  const auto dtype = parse_dtype(row.at("dtype").get<std::string>());
  if (!op || !scales || !dtype) return std::nullopt;
  MeasuredRow measured{.gpu = row.at("gpu").get<std::string>(),
                       .problem = {.op = *op,
                                   .m = row.at("m").get<std::int64_t>(),
                                   .n = row.at("n").get<std::int64_t>(),
                                   .k = row.at("k").get<std::int64_t>(),
                                   .dtype = *dtype,
                                   .scales = *scales,
                                   .fast_accum = row.value("fast_accum", false),
                                   .world = row.at("world").get<int>(),
                                   .is_recorded = row.value("graph", false)}};
  add_times(row, measured);
  return measured;
}

std::optional<MeasuredRow> row_of_line(std::string_view line) {
  const auto row = io::parse_json(line);
  if (!row) throw Failure(kBadInput, row.error());
  if (!row->is_object()) bad_input(fmt::format("found {}, need an object", io::shown(*row)));
  try {
    return row_of(*row);
  } catch (const json::exception& error) {
    bad_input(io::reason_of(error));
  }
}

}  // namespace

std::vector<MeasuredRow> read_bench_rows(const std::string& path) {
  const auto text = io::read_small_file(path, kMostBytes);
  if (!text) bad_input(fmt::format("{}: {}", path, text.error().text()));
  const std::string file = std::filesystem::path(path).filename().native();
  std::vector<MeasuredRow> rows;
  std::size_t begin = 0;
  for (int number = 1; begin < text->size(); ++number) {
    const std::size_t end = std::min(text->find('\n', begin), text->size());
    const std::string_view line = std::string_view(*text).substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \r\t") == std::string_view::npos) continue;
    try {
      if (auto row = row_of_line(line)) {
        row->file = file;
        rows.push_back(*std::move(row));
      }
    } catch (const Failure& failure) {
      bad_input(fmt::format("{}: line {}: {}; need the rows of tandem bench --json", path, number,
                            failure.error().text()));
    }
  }
  return rows;
}

Shape parse_shape(const std::string& flag, const std::string& text) {
  Shape shape;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::int64_t* size : {&shape.m, &shape.n, &shape.k}) {
    const auto [behind, error] = std::from_chars(at, end, *size);
    const bool is_last = size == &shape.k;
    const bool ends_well = is_last ? behind == end : behind != end && *behind == 'x';
    if (error != std::errc() || !ends_well || *size < 1 || *size > (1 << 24))
      bad_input(fmt::format("{} '{}': need MxNxK, each from 1 to {}: 4096x7168x8192", flag, text, 1 << 24));
    at = behind + 1;
  }
  return shape;
}

}  // namespace tandem::cli
