#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/TensorOptions.h>

namespace longhaul::ops::fused {

/// An operator of ours in LibTorch's dispatcher, called with its C++ types: each device
/// has its kernel there, or none. Below autograd: our operations are nodes of their own.
template <typename Signature>
class Operator;

template <typename... A>
class Operator<void(A...)> {
 public:
  /// `name`: "longhaul::rope".
  explicit Operator(const char* name)
      : name_(name),
        handle_(c10::Dispatcher::singleton()
                    .findSchemaOrThrow(name, "")
                    .typed<void(A...)>()) {}

  bool serves(const at::Tensor& x) const {
    return handle_.hasKernelForDispatchKey(key_of(x.device()));
  }
  /// Runs the kernel for tensors on the device of `x`.
  void on(const at::Tensor& x, A... arguments) const {
    RECORD_FUNCTION(name_, {});
    handle_.redispatch(c10::DispatchKeySet(key_of(x.device())), arguments...);
  }

 private:
  const char* name_;

  static c10::DispatchKey key_of(at::Device device) {
    return c10::computeDispatchKey(std::nullopt, std::nullopt, device);
  }

  c10::TypedOperatorHandle<void(A...)> handle_;
};

}  // namespace longhaul::ops::fused
