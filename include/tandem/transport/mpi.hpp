#pragma once

#include <memory>
#include <string>
#include <tandem/base/config.hpp>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/store.hpp>
#include <tandem/bootstrap/transport.hpp>

namespace tandem {

/// What a process that mpirun or srun started has in common with the others: MPI_COMM_WORLD.
struct MpiWorld {
  int rank = 0;
  int size = 1;
  std::string library;  ///< "Open MPI v4.1.4", for people
  /// Served by rank 0, through messages. It carries no files and no objects.
  std::shared_ptr<Store> store;
  /// Of ranks on CPUs.
  std::shared_ptr<Transport> transport;
};

/// Loads the MPI library (Config::mpi_library, else Open MPI's, else MPICH's), initialises it unless the
/// program has, and opens the world. This is a collective call of all processes of the launch. One thread of
/// tandem's makes all calls of MPI from here on; a program that calls MPI itself must have initialised it
/// with MPI_THREAD_MULTIPLE. MPI is finalised with the last part of the world, if tandem initialised it and
/// every rank has come to that.
/// Errors:  kUnsupported without a library, or where it gives too few rights to threads; kDriver with MPI's
///          text.
[[nodiscard]] Result<MpiWorld> open_mpi(const Config& config);

}  // namespace tandem
