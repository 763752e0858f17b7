#pragma once

// Every autograd node of ops needs the headers and names below. No header includes this
// file.

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

namespace longhaul::ops {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;
using torch::autograd::Variable;

/// A value that a backward needs besides tensors. The graph keeps it alive.
template <typename T>
struct Saved : torch::CustomClassHolder {
  explicit Saved(T v) : value(std::move(v)) {}
  T value;
};

template <typename T>
void save(AutogradContext* ctx, T value) {
  ctx->saved_data["saved"] =
      c10::IValue::make_capsule(c10::make_intrusive<Saved<T>>(std::move(value)));
}

template <typename T>
T& saved(AutogradContext* ctx) {
  const auto holder = ctx->saved_data["saved"].toCapsule();
  return static_cast<Saved<T>*>(holder.get())->value;
}

}  // namespace longhaul::ops
