#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tandem/base/config.hpp>
#include <tandem/base/error.hpp>

namespace tandem::transport {

/// The calls of MPI 3.1 that tandem makes, of a library that was loaded. Open MPI's handles are pointers,
/// MPICH's (and Intel MPI's, and MVAPICH's) are ints; both travel as a word.
class MpiLibrary {
 public:
  using Word = std::uintptr_t;
  /// A request of either library.
  struct Request {
    alignas(Word) std::array<std::byte, sizeof(Word)> bytes = {};
  };
  struct Found {
    int source = -1;
    int num_bytes = 0;
  };

  /// Errors: kUnsupported with every place that was tried.
  [[nodiscard]] static Result<MpiLibrary> load(const Config& config);

  /// "Open MPI v4.1.4".
  [[nodiscard]] const std::string& version() const { return version_; }

  // Errors: kDriver with the call and MPI's text.

  [[nodiscard]] Result<bool> is_initialized() const;
  /// With the right to call from one thread after another, at least. Whether several may call at once.
  [[nodiscard]] Result<bool> init() const;
  /// The same of a program that has initialised it.
  [[nodiscard]] Result<bool> may_call_at_once() const;
  /// A communicator of all processes, whose calls return errors. Collective.
  [[nodiscard]] Result<Word> duplicate_world() const;
  [[nodiscard]] Result<int> rank(Word comm) const;
  [[nodiscard]] Result<int> size(Word comm) const;
  [[nodiscard]] Result<void> send(const std::byte* data, int num_bytes, int peer, int tag, Word comm,
                                  Request& request) const;
  [[nodiscard]] Result<void> receive(std::byte* data, int num_bytes, int peer, int tag, Word comm,
                                     Request& request) const;
  /// Whether it is done.
  [[nodiscard]] Result<bool> test(Request& request) const;
  /// A message of anybody's with this tag that has come, if there is one.
  [[nodiscard]] Result<std::optional<Found>> probe(int tag, Word comm) const;
  [[nodiscard]] Result<void> finalize() const;

 private:
  MpiLibrary() = default;
  [[nodiscard]] Result<void> check(int code, const char* call) const;

  // As the standard has them, with handles as words.
  int (*initialized_)(int*) = nullptr;
  int (*init_thread_)(int*, char***, int, int*) = nullptr;
  int (*query_thread_)(int*) = nullptr;
  int (*comm_dup_)(Word, void*) = nullptr;
  int (*comm_set_errhandler_)(Word, Word) = nullptr;
  int (*comm_rank_)(Word, int*) = nullptr;
  int (*comm_size_)(Word, int*) = nullptr;
  int (*isend_)(const void*, int, Word, int, int, Word, void*) = nullptr;
  int (*irecv_)(void*, int, Word, int, int, Word, void*) = nullptr;
  int (*test_)(void*, int*, void*) = nullptr;
  int (*iprobe_)(int, int, Word, int*, void*) = nullptr;
  int (*get_count_)(const void*, Word, int*) = nullptr;
  int (*error_string_)(int, char*, int*) = nullptr;
  int (*finalize_)() = nullptr;

  bool is_open_mpi_ = false;
  Word world_ = 0;
  Word byte_ = 0;
  Word errors_return_ = 0;
  int any_source_ = -1;
  std::size_t source_at_ = 0;  ///< of a status, in bytes
  std::string version_;
};

}  // namespace tandem::transport
