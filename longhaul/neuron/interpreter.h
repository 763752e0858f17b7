#pragma once

#include <csignal>

#include <array>
#include <string>

#include "longhaul/base/json.h"

namespace longhaul::neuron {

/// Puts the process's handling of signals back at its end. Packages of Python change it
/// while they are imported: Python's own module `signal` takes SIGINT.
class KeptSignals {
 public:
  KeptSignals();
  ~KeptSignals();
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  static constexpr int kSignals = 31;  ///< those that POSIX names
  std::array<struct sigaction, kSignals> before_{};
};

/// The Python interpreter of the process. Its library is opened while the program runs,
/// so nothing here needs Python's headers. The interpreter is never ended: packages hold
/// memory of the device until the process has ended.
class Interpreter {
 public:
  /// Opens `libpython` for all libraries of the process and starts the interpreter of
  /// `executable`, whose packages it finds. No signal handler is installed. Afterwards no
  /// thread holds the interpreter's lock. Throws ConfigError if the library cannot be
  /// opened or is not that of the interpreter. A process must make only one.
  Interpreter(const std::string& libpython, const std::string& executable);

  /// Calls a function of bridge.py with the members of `arguments` and returns its
  /// result. Throws InputError with the exception's text if it raises one. Takes the lock
  /// for the call. Thread-safe.
  Json call(const std::string& function, const Json& arguments = Json::object()) const;

 private:
  struct Functions;
  static const Functions& functions(const std::string& libpython);

  const Functions& python_;
};

}  // namespace longhaul::neuron
