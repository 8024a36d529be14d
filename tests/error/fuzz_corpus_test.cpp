// Every file of the fuzzers' corpus, through the parser that it is for: what a fuzzer found once stays
// mended, whatever the compiler.
#include <gtest/gtest.h>

#include <exception>
#include <filesystem>
#include <string>

#include "fuzz/parsers.hpp"
#include "support/io_folder.hpp"

namespace tandem::fuzz {
namespace {

struct Parser {
  const char* name;
  bool (*try_bytes)(std::string_view);
};

void PrintTo(const Parser& parser, std::ostream* out) {
  *out << parser.name;
}

class Corpus : public ::testing::TestWithParam<Parser> {};

TEST_P(Corpus, HoldsWhatTheFuzzerChecks) {
  int num_read = 0;
  int num_refused = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(TANDEM_FUZZ_CORPUS) / GetParam().name)) {
    SCOPED_TRACE(entry.path());
    try {
      ++(GetParam().try_bytes(tests::read_bytes(entry.path())) ? num_read : num_refused);
    } catch (const std::exception& broken) {
      ADD_FAILURE() << broken.what();
    }
  }
  EXPECT_GT(num_read, 0);
  EXPECT_GT(num_refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Parsers, Corpus,
                         ::testing::Values(Parser{"npy", try_npy}, Parser{"safetensors", try_safetensors},
                                           Parser{"weight_index", try_weight_index},
                                           Parser{"tune_table", try_tune_table},
                                           Parser{"device_rates", try_device_rates},
                                           Parser{"problem", try_problem},
                                           Parser{"graph_forms", try_graph_forms}),
                         [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace tandem::fuzz
