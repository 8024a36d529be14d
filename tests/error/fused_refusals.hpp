#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "conformance/fused_harness.hpp"

namespace tandem::test {

/// What a case changes in arguments that are right, and the piece of text that the error has to have.
template <class Args>
struct Change {
  std::string text;
  std::function<void(Args&)> make;
  ErrorCode code = ErrorCode::kInvalidArgument;
};

template <class Report>
void expect_error(const Report& report, ErrorCode code, const std::string& text, Complaints& complaints) {
  if (report) {
    complaints.add(fmt::format("accepted; need an error with '{}'", text));
  } else if (report.error().code() != code || report.error().text().find(text) == std::string::npos) {
    complaints.add(fmt::format("got '{}', need '{}'", report.error().to_string(), text));
  }
}

/// `op`, plan() and can_run() refuse everything that makes good() of `Arguments` wrong, and then `op` still
/// runs.
template <class Arguments, class Op>
void expect_refusals(const JobCase& job, Op op) {
  Complaints complaints;
  on_ranks(job, quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    Arguments arguments(rank.device);
    for (const auto& changes : {arguments.wrong_inputs(), arguments.wrong_outputs()}) {
      for (const auto& change : changes) {
        auto args = arguments.good();
        change.make(args);
        expect_error(plan(args, rank.group, rank.stream), change.code, change.text, complaints);
        if (can_run(args, rank.group, rank.stream)) complaints.add("can_run says yes: " + change.text);
        expect_error(op(args, rank.group, rank.stream), change.code, change.text, complaints);
      }
    }
    if (const auto ran = op(arguments.good(), rank.group, rank.stream); !ran)
      return tl::unexpected(ran.error());
    return rank.stream.synchronize();
  });
  EXPECT_EQ(complaints.text(), "");
}

}  // namespace tandem::test
