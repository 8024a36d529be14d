#include <tandem/cost/table.hpp>

#include "fuzz/check.hpp"
#include "fuzz/parsers.hpp"

namespace tandem::fuzz {

bool try_tune_table(std::string_view bytes) {
  const auto table = cost::parse_table(bytes);
  if (!table) {
    check(table.error().code() == ErrorCode::kParse, "a refusal with another code");
    check_refusal(table.error().text(), {"byte ", "row ", "format", "library", "device", "rows"});
    return false;
  }
  const std::string text = to_json(*table);
  const auto again = cost::parse_table(text);
  check(again && to_json(*again) == text, "written and read as another table");
  const auto sent = cost::parse_table(to_message(*table));
  check(sent && sent->rows.size() == table->rows.size(), "sent as another table");
  for (const cost::Row& row : table->rows) {
    const cost::Row* const found = table->find(row.key);
    check(found != nullptr && found->key == row.key, "a row is not found by its key");
    const cost::Row* const of_sent = sent->find(row.key);
    check(of_sent != nullptr && of_sent->us == row.us, "a row is sent with other times");
  }
  return true;
}

}  // namespace tandem::fuzz
