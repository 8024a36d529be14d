#pragma once

#include <functional>
#include <memory>
#include <string>

namespace tandem::cli {

/// What becomes of ^C, SIGTERM and SIGHUP in the process that the user started. One that its caller ignores,
/// as nohup and a script's background jobs do, stays ignored. While a job runs, a signal ends its ranks, and
/// the command then ends when it asks. At any other time, and where the command does not ask within seconds,
/// it ends the process at once, whatever that waits for. The exit code is 128 and the signal's number, and
/// the last line says what was kept. Make it before other threads exist.
class Interrupts {
 public:
  /// Throws exit 1 if no thread can be made.
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// While one exists, the command asks by check(). Throws like it to begin with.
  class Orderly {
   public:
    explicit Orderly(Interrupts& interrupts);
    ~Orderly();
    Orderly(const Orderly&) = delete;
    Orderly& operator=(const Orderly&) = delete;

   private:
    Interrupts& interrupts_;
  };
  /// `end` is called, from another thread, when a signal arrives; null takes it back.
  void on_signal(std::function<void()> end);
  /// Throws the Failure that a signal asks for, if one came.
  void check() const;
  /// The same for a signal that is on its way.
  void check_soon() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Writes a line to stderr, unless it would have to wait for a reader.
void say_at_once(const std::string& line);

/// For main(): the end of a child is seen whatever the caller ignored, and a file that reaches its limit is
/// an error instead of a sudden end.
void set_signals_of_this_program();

}  // namespace tandem::cli
