#pragma once

#include <string>

namespace longhaul::system {

/// Notes SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP and SIGXCPU while it lives, instead of
/// letting them end the process; a second SIGINT ends it at once. A closed terminal sends
/// SIGHUP, which stays ignored if the process was started so (nohup). The kernel sends
/// SIGXCPU when the time of `ulimit -St` is used, and each second after that. SIGQUIT
/// still ends the process at once, for a core dump. A process has one watch at a time. At
/// its end the watch restores what was before.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// Returns the first signal that came, or 0.
  int raised() const;
  /// Counts SIGINTs, for a process that ends others before itself. From now on the third
  /// SIGINT, not the second, ends the process at once.
  void count_interrupts();
  int interrupts() const;
};

/// What the living watch has noted. A supervisor hands a signal on to its workers as
/// SIGUSR1 with the number of its own signal as the value (sigqueue): that number counts,
/// since it is what a person has sent.
struct RaisedSignal {
  int number = 0;         ///< the newest; 0: none, or no watch lives
  int sender = 0;         ///< process id of who sent it; 0: the kernel
  bool answered = false;  ///< answer_signal() was called since the first
};
RaisedSignal raised_signal();

/// Sends this process a signal as a supervisor sends it, to try how signals are noticed.
/// From show() to the end of this object raised_signal() has the signal, unless another
/// has come. Nothing is left of it after this object, nor of an answer_signal() that
/// meant only this signal. One object may live at a time.
class RehearsedSignal {
 public:
  /// Waits until the living watch has noted the signal, `seconds` at most.
  explicit RehearsedSignal(double seconds);
  ~RehearsedSignal();
  RehearsedSignal(const RehearsedSignal&) = delete;
  RehearsedSignal& operator=(const RehearsedSignal&) = delete;

  /// Returns the number of the signal.
  static int number();
  /// Returns whether the watch has noted the signal.
  bool noted() const;
  /// Lets raised_signal() have the signal from now on, if the watch has noted it.
  void show();
};

/// Says that it is decided what to do about the signals. Code that waits only for a short
/// time while a signal is unanswered may then wait as usual.
void answer_signal();

/// Sets the line that a second SIGINT prints on standard error before it ends the
/// process: what is left behind. The newest line counts. One thread at a time may call
/// it.
void set_last_words(const std::string& line);
std::string last_words();

/// Ignores the signals of SignalWatch from now on, also after the watch, since how this
/// process ends is settled. A launcher that ends the others as soon as one has left would
/// otherwise turn their exit codes into "killed by SIGTERM".
void ignore_signals_until_exit();

/// Blocks signals for the calling thread, at its start: signals are the main thread's.
void leave_signals_to_main_thread();

/// Returns the name of a signal, such as "SIGTERM".
const char* signal_name(int number);

}  // namespace longhaul::system
