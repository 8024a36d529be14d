#include "command.hpp"
#include "failure.hpp"

namespace tandem::cli {
namespace {

/// Reached without a command to trace: see CommandLine.
class TraceCommand : public Command {
 public:
  void define(CLI::App& app) override {
    app.add_option("command", command_, "demo, run or bench, with its own arguments")
        ->type_name("COMMAND ...");
    app.add_option("--out", folder_, "the folder for trace.json and trace.html: the last --out is trace's")
        ->type_name("DIR");
  }
  int launch(const Invocation& /*invocation*/) override {
    bad_input("trace: need a command: tandem trace demo|run|bench ARGUMENTS ... --out DIR");
  }

 private:
  std::string command_;
  std::string folder_;
};

}  // namespace

std::unique_ptr<Command> make_trace() {
  return std::make_unique<TraceCommand>();
}

}  // namespace tandem::cli
