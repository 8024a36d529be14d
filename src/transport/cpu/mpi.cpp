#include <tandem/transport/mpi.hpp>

#include "base/try.hpp"
#include "transport/cpu/mpi_store.hpp"
#include "transport/cpu/mpi_thread.hpp"
#include "transport/cpu/mpi_transport.hpp"

namespace tandem {

Result<MpiWorld> open_mpi(const Config& config) {
  TANDEM_ASSIGN(const auto mpi, transport::MpiThread::start(config));
  return MpiWorld{.rank = mpi->rank(),
                  .size = mpi->size(),
                  .library = mpi->version(),
                  .store = std::make_shared<transport::MpiStore>(mpi, config.op_timeout),
                  .transport = std::make_shared<transport::MpiTransport>(mpi)};
}

}  // namespace tandem
