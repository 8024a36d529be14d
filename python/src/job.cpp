#include "job.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <unistd.h>

#include <csignal>
#include <future>
#include <optional>
#include <system_error>
#include <tandem/bootstrap/launcher.hpp>
#include <tandem/bootstrap/local_store.hpp>

#include "errors.hpp"

namespace tandem::python {
namespace {

Deadline after_seconds(double seconds) {
  return Deadline::after(std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3)));
}

/// W processes of an interpreter.
class PyJob {
 public:
  PyJob(int ranks, const std::string& program, const std::vector<std::string>& arguments, double grace)
      : ranks_(ranks) {
    LaunchOptions options;
    options.ranks = ranks;
    options.program = program;
    options.interpreter_arguments = arguments;
    options.grace = std::chrono::milliseconds(static_cast<std::int64_t>(grace * 1e3));
    job_ = take_unlocked([&] { return Job::start(options); });
    try {
      outcome_ = std::async(std::launch::async, [this] { return job_->wait(Deadline::never()); }).share();
    } catch (const std::system_error& refused) {
      const int code = refused.code().value();
      throw Raised(Error(ErrorCode::kDriver,
                         "job: no thread that waits for the ranks: " + refused.code().message() +
                             "; raise the limit of processes (ulimit -u)",
                         code));
    }
  }
  ~PyJob() {
    end();
    // In a child by fork() the thread that waits does not exist.
    if (!is_here()) new std::shared_future<Result<JobOutcome>>(std::move(outcome_));
  }
  PyJob(const PyJob&) = delete;
  PyJob& operator=(const PyJob&) = delete;

  [[nodiscard]] Store& store() const { return job_->store(); }

  /// Whether all ranks have ended within the time.
  bool wait(double seconds) {
    check_process();
    const nb::gil_scoped_release unlocked;
    return outcome_.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready;
  }
  /// (first failed rank or -1, its error's code or empty, its text).
  nb::tuple outcome() {
    check_process();
    const JobOutcome ended = take_unlocked([&] { return outcome_.get(); });
    const auto status = ended.status();
    if (status) return nb::make_tuple(-1, "", "");
    return nb::make_tuple(ended.first_failed, std::string(to_string(status.error().code())),
                          status.error().text());
  }
  void send_signal(int signal) {
    for (int rank = 0; rank < ranks_ && !wait(0); ++rank) ::kill(job_->pid(rank), signal);
  }
  /// Kills what still runs.
  void end() {
    if (!job_ || !is_here()) return;
    const nb::gil_scoped_release unlocked;
    // A deadline that has passed has the job killed, and the other wait ends too.
    static_cast<void>(job_->wait(Deadline::after(std::chrono::nanoseconds(0))));
    outcome_.wait();
  }

 private:
  [[nodiscard]] bool is_here() const { return ::getpid() == pid_; }
  void check_process() const {
    if (!is_here()) refuse("the job was started by process " + std::to_string(pid_) + ", which waits for it");
  }

  const pid_t pid_ = ::getpid();
  int ranks_;
  std::unique_ptr<Job> job_;
  std::shared_future<Result<JobOutcome>> outcome_;
};

std::optional<RankContext> join(std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  int count = static_cast<int>(arguments.size());
  char** values = pointers.data();
  return take(join_job(count, values));
}

void set_file(Store& store, const std::string& key, int fd) {
  take_unlocked([&] { return store.set_file(key, fd); });
}

int get_file(Store& store, const std::string& key, double timeout) {
  return take_unlocked([&] { return store.get_file(key, after_seconds(timeout)); }).release();
}

void report(const RankContext& context, bool is_victim, const std::string& text) {
  report_failure(context, Error(is_victim ? ErrorCode::kPeerLost : ErrorCode::kInternal, text));
}

}  // namespace

void bind_jobs(nb::module_& module) {
  nb::class_<Store>(module, "Store", "A key-value store that all ranks of a job can reach.")
      .def("set_file", &set_file, nb::arg("key"), nb::arg("fd"), "Publishes a duplicate of an open file.")
      .def("get_file", &get_file, nb::arg("key"), nb::arg("timeout"),
           "Waits for a file and returns its descriptor, which the caller closes.");
  nb::class_<LocalStoreServer>(module, "StoreServer",
                               "Serves a Store to processes of this user on this host.")
      .def(nb::new_([] { return take(LocalStoreServer::create()); }))
      .def(
          "listen",
          [](LocalStoreServer& server, int expected_clients) {
            const auto address = take(server.listen(expected_clients));
            return std::pair(address.path, address.token);
          },
          nb::arg("expected_clients"), "Opens a socket; returns its path and the secret that clients send.")
      .def("local", &LocalStoreServer::local, "The store for this process.");
  module.def(
      "open_store",
      [](const std::string& path, const std::string& token, double timeout) {
        return take_unlocked([&] { return open_local_store({path, token}, after_seconds(timeout)); });
      },
      nb::arg("path"), nb::arg("token"), nb::arg("timeout"), "Opens a store of a listening server.");
  module.def("make_in_process_store", &make_in_process_store, "A store for the ranks of one process.");

  nb::class_<RankContext>(module, "RankContext", "What a launched process knows of its job.")
      .def_ro("rank", &RankContext::rank)
      .def_ro("size", &RankContext::size)
      .def_ro("store", &RankContext::store)
      .def("report_failure", &report, nb::arg("is_victim"), nb::arg("text"),
           "Tells the launcher why this rank is going to end with an exit code other than 0.");
  module.def("join_job", &join, nb::arg("arguments"),
             "The context of a process that a Job started, from its command line.");

  nb::class_<PyJob>(module, "Job",
                    "Processes of an interpreter, one for each rank. They end with this object.")
      .def(nb::init<int, const std::string&, const std::vector<std::string>&, double>(), nb::arg("ranks"),
           nb::arg("program"), nb::arg("arguments"), nb::arg("grace"))
      .def_prop_ro("store", &PyJob::store, nb::rv_policy::reference_internal)
      .def("wait", &PyJob::wait, nb::arg("seconds"), "Whether all ranks have ended within the time.")
      .def("outcome", &PyJob::outcome, "The rank that failed first or -1, its error's code, and the text.")
      .def("send_signal", &PyJob::send_signal, nb::arg("signal"), "Sends a signal to every rank.")
      .def("end", &PyJob::end, "Kills the ranks that still run.");
}

}  // namespace tandem::python
