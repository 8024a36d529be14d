#include <tandem/backend/backend.hpp>

#include "command.hpp"
#include "failure.hpp"

namespace tandem::cli {
namespace {

class ListGpusCommand : public Command {
 public:
  void define(CLI::App&) override {}
  int launch(const Invocation&) override { bad_input("list-gpus is the tool's own; see tandem doctor"); }
  nlohmann::json run_rank(const RankContext&, const Config&) override {
    const auto names = list_cuda_devices();
    return {{"names", names ? *names : std::vector<std::string>{}},
            {"why_not", names ? "" : names.error().text()}};
  }
};

}  // namespace

std::unique_ptr<Command> make_list_gpus() {
  return std::make_unique<ListGpusCommand>();
}

}  // namespace tandem::cli
