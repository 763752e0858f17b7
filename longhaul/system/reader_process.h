#pragma once

#include <functional>
#include <memory>
#include <string>

#include "longhaul/system/limited_child.h"

namespace longhaul {

/// A small process, forked when this object is made, that answers requests, each in a
/// limited child of its own (run_in_limited_child): for reading many outside files with a
/// library that is not trusted with them, from a program that grows large and has
/// threads. Only the small process forks again, so that a read costs the same however
/// large this program has become. Make it early: before threads, before MPI, while little
/// memory is used; it holds none of this process's files but its socket, and ends with
/// it.
class ReaderProcess {
 public:
  /// `work` turns a request into an answer, in the child. TemporaryError when there can
  /// be no process.
  explicit ReaderProcess(std::function<std::string(const std::string&)> work,
                         const ChildLimits& limits = {});
  ~ReaderProcess();
  ReaderProcess(const ReaderProcess&) = delete;
  ReaderProcess& operator=(const ReaderProcess&) = delete;

  /// The answer to one request. An Error that the work throws comes out as the same kind;
  /// a child that dies is an InputError that begins with `what`. TemporaryError when the
  /// process itself is gone. Any thread may call it; they take turns.
  std::string ask(const std::string& what, const std::string& request);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul
