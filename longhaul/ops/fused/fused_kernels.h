#pragma once

#include "longhaul/ops/fused/fused.h"
#include "longhaul/ops/kernels/arguments.h"

// This header implements operators by kernels on raw pointers. An operator's tensors
// become the arguments of a kernel, in the same way for every device that runs the
// kernels in its own memory.

namespace longhaul::ops::fused {

using at::Tensor;

/// Calls `run` with a value of the element type of x.
template <typename Run>
void with_type(const Tensor& x, const Run& run) {
  if (x.scalar_type() == at::kFloat) {
    run(float{});
  } else {
    run(kernels::Bf16{});
  }
}

/// The memory of a tensor, which converts to the pointer that a kernel takes; null for an
/// undefined tensor.
class Memory {
 public:
  explicit Memory(const Tensor& x) : data_(x.defined() ? x.data_ptr() : nullptr) {}
  template <typename T>
  operator T*() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
};

/// Returns what a kernel's of() takes for an argument of the operator.
template <typename T>
const T& handed(const T& argument) {
  return argument;
}
inline kernels::Array handed(const Tensor& x) {
  if (!x.defined()) return {};
  return {x.data_ptr(), x.sizes().data(), x.strides().data(),
          x.dim(),      x.numel(),        static_cast<int64_t>(x.element_size())};
}

template <typename Launch, template <typename> class Kernel>
void implement_by_kernel(torch::Library& library) {
  op<Kernel>.implement(library, [](const auto&... arguments) {
    const Tensor& x = first_tensor(arguments...);
    with_type(x, [&]<typename T>(T) {
      Launch::run(Kernel<T>::of(handed(arguments)...), x.device());
    });
  });
}

/// Gives `library` the kernels of a list, which Launch::run(kernel, device) runs.
template <typename Launch, template <typename> class... Listed>
void implement_by_kernels(torch::Library& library,
                          kernels::KernelList<Listed...> /*list*/) {
  (implement_by_kernel<Launch, Listed>(library), ...);
}

}  // namespace longhaul::ops::fused
