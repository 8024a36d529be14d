#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <string_view>
#include <tandem/bootstrap/launcher.hpp>
#include <tandem/bootstrap/local_store.hpp>

#include "base/format.hpp"
#include "base/system_refusal.hpp"
#include "base/try.hpp"
#include "bootstrap/failure_report.hpp"
#include "bootstrap/rank_ends.hpp"
#include "bootstrap/rank_process.hpp"

namespace tandem {
namespace {

/// "<fd>:<rank>:<size>".
Result<void> parse(std::string_view text, int (&numbers)[3]) {
  const std::string_view whole = text;
  for (int i = 0; i < 3; ++i) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), numbers[i]);
    const bool is_last = i == 2;
    const bool ends_well =
        is_last ? end == text.data() + text.size() : end != text.data() + text.size() && *end == ':';
    if (error != std::errc() || numbers[i] < 0 || !ends_well) {
      return failf(ErrorCode::kInvalidArgument,
                   "{}{}: need <fd>:<rank>:<size>; only a job's launcher passes this",
                   bootstrap::kRankArgument, whole);
    }
    if (!is_last) text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  }
  return {};
}

Result<UniqueFd> take_connection(int fd) {
  int type = 0;
  socklen_t length = sizeof(type);
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_SEQPACKET) {
    return failf(ErrorCode::kInvalidArgument, "{}: file descriptor {} is not a launcher's connection",
                 bootstrap::kRankArgument, fd);
  }
  UniqueFd connection(fd);
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
    return tl::unexpected(system_refusal("job: the launcher's connection stays open for children", errno));
  return connection;
}

}  // namespace

Result<std::optional<RankContext>> join_job(int& argc, char**& argv) {
  if (argc < 2) return std::nullopt;
  const std::string_view argument(argv[1]);
  if (argument.substr(0, bootstrap::kRankArgument.size()) != bootstrap::kRankArgument) return std::nullopt;
  int numbers[3] = {};
  TANDEM_TRY(parse(argument.substr(bootstrap::kRankArgument.size()), numbers));
  TANDEM_ASSIGN(UniqueFd connection, take_connection(numbers[0]));
  RankContext context{numbers[1], numbers[2], nullptr, numbers[1]};
  TANDEM_ASSIGN(context.store, open_local_store(std::move(connection)));
  TANDEM_TRY(bootstrap::write_joined(*context.store, context.rank));
  argv[1] = argv[0];
  ++argv;
  --argc;
  return std::optional(std::move(context));
}

void report_failure(const RankContext& context, const Error& error) {
  // If the launcher is gone nobody can be told; the exit code says that something went wrong.
  static_cast<void>(bootstrap::write_failure(*context.store, context.rank, error));
  if (bootstrap::is_launch(*context.store))
    static_cast<void>(bootstrap::write_end(*context.store, context.rank, {bootstrap::RankEnd::kUnknown, 0}));
}

}  // namespace tandem
