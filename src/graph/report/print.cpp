#include <cmath>
#include <nlohmann/json.hpp>
#include <tandem/base/time_text.hpp>
#include <tandem/graph/fuse.hpp>

#include "base/format.hpp"

namespace tandem::graph {

std::string to_json(const FuseReport& report) {
  constexpr int kSchema = 1;
  auto collectives = nlohmann::ordered_json::array();
  for (const CollectiveReport& one : report.collectives) {
    nlohmann::ordered_json row;
    row["node"] = one.node;
    row["kind"] = to_string(one.kind);
    row["fused_into"] = one.fused_into ? nlohmann::ordered_json(*one.fused_into) : nullptr;
    row["num_products"] = one.num_products;
    row["products_left"] = one.products_left;
    row["reason"] = one.reason ? nlohmann::ordered_json(to_string(*one.reason)) : nullptr;
    row["detail"] = one.detail;
    row["runs_beside"] = one.runs_beside ? nlohmann::ordered_json(*one.runs_beside) : nullptr;
    row["is_legal"] = one.is_legal;
    row["bytes"] = one.bytes;
    row["saved_us"] = std::round(one.saved_us * 10) / 10;
    collectives.push_back(std::move(row));
  }
  nlohmann::ordered_json all;
  all["schema"] = kSchema;
  all["collectives"] = std::move(collectives);
  all["fused"] = report.fused;
  return all.dump(2) + "\n";
}

std::string to_table(const FuseReport& report) {
  std::size_t width = 10;
  for (const CollectiveReport& one : report.collectives) width = std::max(width, one.node.size());
  std::string text = fmt::format("{:{}}  {:14}  {:>10}  {:>9}  what became of it\n", "collective", width,
                                 "kind", "MiB", "saved");
  for (const CollectiveReport& one : report.collectives) {
    const double mib = static_cast<double>(one.bytes) / (1 << 20);
    text += fmt::format("{:{}}  {:14}  {:>10.3f}  {:>9}  ", one.node, width, to_string(one.kind), mib,
                        time_text(one.saved_us));
    if (one.fused_into) {
      const auto num_left = std::ssize(one.products_left);
      text += fmt::format("fused into {}", *one.fused_into);
      if (num_left > 0)
        text += fmt::format(" with {} of {} products", one.num_products, one.num_products + num_left);
      text += "\n";
    } else {
      text += fmt::format("{}: {}{}{}\n", to_string(*one.reason), describe(*one.reason),
                          one.detail.empty() ? "" : ": " + one.detail,
                          one.runs_beside ? "; runs beside products as " + *one.runs_beside : "");
    }
  }
  for (const auto& [op, count] : report.fused) {
    text += fmt::format("{} {} in {}\n", count, count == 1 ? "collective" : "collectives", op);
  }
  if (report.fused.empty()) text += "NOTHING WAS FUSED\n";
  return text;
}

}  // namespace tandem::graph
