#include <unistd.h>
#include <tandem/base/unique_fd.hpp>

namespace tandem {

void UniqueFd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace tandem
