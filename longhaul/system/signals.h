#pragma once

#include <string>

namespace longhaul {

/// While it lives, SIGTERM, SIGINT and SIGUSR1 are noted instead of ending the process; a
/// second SIGINT ends it at once. One at a time per process; restores what was before.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// The first signal that came, or 0.
  int raised() const;
  /// Notes SIGHUP too from now on, which a closed terminal sends, unless the process
  /// ignores the signal (nohup).
  void note_hangup();
  /// For who ends others before itself: how often SIGINT came. From now on the third, not
  /// the second, ends the process at once.
  void count_interrupts();
  int interrupts() const;
};

/// What the watch that lives has noted.
struct RaisedSignal {
  int number = 0;         ///< the newest; 0: none, or no watch lives
  int sender = 0;         ///< process id of who sent it; 0: the kernel
  bool answered = false;  ///< answer_signal() was called since the first
};
RaisedSignal raised_signal();

/// What is to be done about the signals is decided: nobody needs to hurry any more.
void answer_signal();

/// What a second SIGINT says on standard error before it ends the process: what is left
/// behind. Of one line; the newest counts. One thread at a time.
void set_last_words(const std::string& line);
std::string last_words();

/// How this process ends is settled: from now on the three signals do nothing, also after
/// the watch. A launcher that ends the others as soon as one has left would otherwise
/// turn their exit codes into "killed by SIGTERM".
void ignore_signals_until_exit();

/// For a thread of ours, at its start: signals are the main thread's.
void leave_signals_to_main_thread();

/// "SIGTERM" ...
const char* signal_name(int number);

}  // namespace longhaul
