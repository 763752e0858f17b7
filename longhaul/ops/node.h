#pragma once

// Only for the .cpp files of ops: what every autograd node of ours needs.

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <memory>
#include <optional>

namespace longhaul::ops {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;
using torch::autograd::Variable;

/// Values other than tensors that a backward needs, kept alive by the graph.
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
