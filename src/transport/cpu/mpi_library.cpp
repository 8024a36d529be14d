#include "transport/cpu/mpi_library.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/format.hpp"
#include "base/shared_library.hpp"
#include "base/try.hpp"

namespace tandem::transport {
namespace {

constexpr int kSuccess = 0;
constexpr int kSerialized = 2;
constexpr int kMultiple = 3;
/// Larger than any library's.
using Status = std::array<std::byte, 64>;
constexpr std::size_t kLongestText = 8192;

// Of MPICH's common binary interface.
constexpr MpiLibrary::Word kMpichWorld = 0x44000000;
constexpr MpiLibrary::Word kMpichByte = 0x4c00010d;
constexpr MpiLibrary::Word kMpichErrorsReturn = 0x54000001;

Result<SharedLibrary> find_library(const Config& config) {
  constexpr std::array<std::string_view, 4> kFolders = {"/usr/lib/*/openmpi/lib", "/usr/lib64/openmpi/lib",
                                                        "/usr/lib64/mpich/lib", "/opt/*mpi*/lib"};
  constexpr std::array<std::string_view, 4> kSonames = {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12",
                                                        "libmpi.so"};
  std::string tried;
  for (const std::string_view soname : kSonames) {
    auto library = SharedLibrary::load({.name = "MPI",
                                        .soname = soname,
                                        .variable = "TANDEM_MPI_LIBRARY",
                                        .path = config.mpi_library,
                                        .folders = kFolders});
    if (library || config.mpi_library) return library;
    tried += fmt::format("{}{}", tried.empty() ? "" : "; ", library.error().text());
  }
  return failf(ErrorCode::kUnsupported, "{}", tried);
}

}  // namespace

Result<void> MpiLibrary::check(int code, const char* call) const {
  if (code == kSuccess) return {};
  std::vector<char> text(kLongestText, '\0');
  int length = 0;
  if (error_string_(code, text.data(), &length) != kSuccess) text[0] = '\0';
  return failf(ErrorCode::kDriver, "{}: {}: {}", version_, call, text.data());
}

Result<MpiLibrary> MpiLibrary::load(const Config& config) {
  TANDEM_ASSIGN(const SharedLibrary library, find_library(config));
  MpiLibrary mpi;
  TANDEM_TRY(library.find("MPI_Initialized", mpi.initialized_));
  TANDEM_TRY(library.find("MPI_Init_thread", mpi.init_thread_));
  TANDEM_TRY(library.find("MPI_Query_thread", mpi.query_thread_));
  TANDEM_TRY(library.find("MPI_Comm_dup", mpi.comm_dup_));
  TANDEM_TRY(library.find("MPI_Comm_set_errhandler", mpi.comm_set_errhandler_));
  TANDEM_TRY(library.find("MPI_Comm_rank", mpi.comm_rank_));
  TANDEM_TRY(library.find("MPI_Comm_size", mpi.comm_size_));
  TANDEM_TRY(library.find("MPI_Isend", mpi.isend_));
  TANDEM_TRY(library.find("MPI_Irecv", mpi.irecv_));
  TANDEM_TRY(library.find("MPI_Test", mpi.test_));
  TANDEM_TRY(library.find("MPI_Iprobe", mpi.iprobe_));
  TANDEM_TRY(library.find("MPI_Get_count", mpi.get_count_));
  TANDEM_TRY(library.find("MPI_Error_string", mpi.error_string_));
  TANDEM_TRY(library.find("MPI_Finalize", mpi.finalize_));
  int (*get_version)(char*, int*) = nullptr;
  TANDEM_TRY(library.find("MPI_Get_library_version", get_version));
  std::vector<char> text(kLongestText, '\0');
  int length = 0;
  get_version(text.data(), &length);
  const std::string_view whole(text.data());
  mpi.version_ = whole.substr(0, whole.find_first_of(",\n"));
  std::byte* world = nullptr;
  if (library.find("ompi_mpi_comm_world", world)) {
    std::byte* byte = nullptr;
    std::byte* errors_return = nullptr;
    TANDEM_TRY(library.find("ompi_mpi_byte", byte));
    TANDEM_TRY(library.find("ompi_mpi_errors_return", errors_return));
    mpi.is_open_mpi_ = true;
    mpi.world_ = reinterpret_cast<Word>(world);
    mpi.byte_ = reinterpret_cast<Word>(byte);
    mpi.errors_return_ = reinterpret_cast<Word>(errors_return);
    return mpi;
  }
  mpi.world_ = kMpichWorld;
  mpi.byte_ = kMpichByte;
  mpi.errors_return_ = kMpichErrorsReturn;
  mpi.any_source_ = -2;
  mpi.source_at_ = 2 * sizeof(int);  // behind the two words of the count
  return mpi;
}

Result<bool> MpiLibrary::is_initialized() const {
  int flag = 0;
  TANDEM_TRY(check(initialized_(&flag), "MPI_Initialized"));
  return flag != 0;
}

Result<bool> MpiLibrary::init() const {
  int provided = 0;
  TANDEM_TRY(check(init_thread_(nullptr, nullptr, kMultiple, &provided), "MPI_Init_thread"));
  if (provided < kSerialized) {
    return failf(
        ErrorCode::kUnsupported,
        "{}: it lets only the thread that initialised it call (level {}, need {}); take a build with "
        "threads",
        version_, provided, kSerialized);
  }
  return provided >= kMultiple;
}

Result<bool> MpiLibrary::may_call_at_once() const {
  int provided = 0;
  TANDEM_TRY(check(query_thread_(&provided), "MPI_Query_thread"));
  return provided >= kMultiple;
}

Result<MpiLibrary::Word> MpiLibrary::duplicate_world() const {
  Word comm = 0;
  TANDEM_TRY(check(comm_dup_(world_, &comm), "MPI_Comm_dup"));
  TANDEM_TRY(check(comm_set_errhandler_(comm, errors_return_), "MPI_Comm_set_errhandler"));
  return comm;
}

Result<int> MpiLibrary::rank(Word comm) const {
  int value = 0;
  TANDEM_TRY(check(comm_rank_(comm, &value), "MPI_Comm_rank"));
  return value;
}

Result<int> MpiLibrary::size(Word comm) const {
  int value = 0;
  TANDEM_TRY(check(comm_size_(comm, &value), "MPI_Comm_size"));
  return value;
}

Result<void> MpiLibrary::send(const std::byte* data, int num_bytes, int peer, int tag, Word comm,
                              Request& request) const {
  return check(isend_(data, num_bytes, byte_, peer, tag, comm, request.bytes.data()), "MPI_Isend");
}

Result<void> MpiLibrary::receive(std::byte* data, int num_bytes, int peer, int tag, Word comm,
                                 Request& request) const {
  return check(irecv_(data, num_bytes, byte_, peer, tag, comm, request.bytes.data()), "MPI_Irecv");
}

Result<bool> MpiLibrary::test(Request& request) const {
  Status status = {};
  int flag = 0;
  TANDEM_TRY(check(test_(request.bytes.data(), &flag, status.data()), "MPI_Test"));
  return flag != 0;
}

Result<std::optional<MpiLibrary::Found>> MpiLibrary::probe(int tag, Word comm) const {
  Status status = {};
  int flag = 0;
  TANDEM_TRY(check(iprobe_(any_source_, tag, comm, &flag, status.data()), "MPI_Iprobe"));
  if (flag == 0) return std::nullopt;
  Found found;
  std::memcpy(&found.source, status.data() + source_at_, sizeof(found.source));
  TANDEM_TRY(check(get_count_(status.data(), byte_, &found.num_bytes), "MPI_Get_count"));
  return found;
}

Result<void> MpiLibrary::finalize() const {
  return check(finalize_(), "MPI_Finalize");
}

}  // namespace tandem::transport
