#pragma once

#include <ATen/record_function.h>

#include <map>
#include <memory>
#include <string>

namespace longhaul::ops {

/// How often each operation runs while this lives.
class Counted {
 public:
  Counted() {
    calls().clear();
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& f)
                                       -> std::unique_ptr<at::ObserverContext> {
          ++calls()[f.name()];
          return nullptr;
        }).scopes({at::RecordScope::FUNCTION}));
  }
  ~Counted() { at::removeCallback(handle_); }
  int of(const std::string& name) const { return calls()[name]; }

 private:
  static std::map<std::string, int>& calls() {
    thread_local std::map<std::string, int> calls;
    return calls;
  }
  at::CallbackHandle handle_ = 0;
};

}  // namespace longhaul::ops
