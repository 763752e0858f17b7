#pragma once

#include <functional>
#include <memory>
#include <string>

#include "longhaul/system/limited_child.h"

namespace longhaul::system {

/// A small process, forked when this object is made, that answers requests, each in a
/// limited child of its own (run_in_limited_child). It serves programs that grow large
/// and have threads, and that read many outside files with a library which is not trusted
/// with them.
/// Only the small process forks again, so a read costs the same however large this
/// program has become. Make it early: before threads, before MPI, while little memory is
/// used. It holds none of this process's files but its socket, and ends with it.
class ReaderProcess {
 public:
  /// Starts the process. `work` turns a request into an answer, in the child. Throws
  /// TemporaryError if the system gives no process.
  explicit ReaderProcess(std::function<std::string(const std::string&)> work,
                         const ChildLimits& limits = {});
  ~ReaderProcess();

  /// Returns the answer to one request. An Error that the work throws comes out as the
  /// same kind; for a child that dies it throws an InputError that begins with `what`,
  /// and TemporaryError if the process itself is gone. Any thread may call it; calls wait
  /// for each other.
  std::string ask(const std::string& what, const std::string& request);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::system
