#include "base/random_bytes.hpp"

#include <sys/random.h>

#include <cerrno>
#include <string>

#include "base/system_refusal.hpp"
#include "base/uninterrupted.hpp"

namespace tandem {

Result<void> random_bytes(std::string_view what, std::span<std::byte> bytes) {
  // So few come all or not at all.
  const ssize_t count = uninterrupted([&] { return ::getrandom(bytes.data(), bytes.size(), 0); });
  if (count == static_cast<ssize_t>(bytes.size())) return {};
  return tl::unexpected(system_refusal(std::string(what) + ": no random bytes", errno));
}

}  // namespace tandem
