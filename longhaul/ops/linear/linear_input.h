#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace longhaul::ops {

/// A tensor that backward passes need but that is not kept until then: the tensor is
/// gathered or computed again. The tensor is made at the first take() and released at the
/// last. Not thread-safe.
class SavedInput {
 public:
  virtual ~SavedInput() = default;
  /// Announces one more take(). The forward calls this.
  void hold() { ++holders_; }
  /// Begins to make a tensor that has to be fetched from other ranks, so that the work
  /// until take() runs beside it. May be left out. Collective where take() is.
  virtual void begin() {}
  /// Returns the tensor. The backward calls this once for each hold(). Making the tensor
  /// may be collective, so all ranks call take() in the same order.
  at::Tensor take();

 protected:
  virtual at::Tensor make() = 0;

 private:
  int64_t holders_ = 0;
  at::Tensor made_;
};

/// Weight gradients that a backward pass computes while ranks sum the gradient of the
/// input. The layers that have the input put them here. Whoever sums runs them, in their
/// order, once the sum is under way.
using BesideSum = std::vector<std::function<void()>>;

/// The input of a linear layer: x [T, K], and how to have x again in the backward. If
/// `again` is null, x itself is kept. If `beside` is not null, the gradient of x is
/// summed over ranks, and the layer's weight gradient is computed beside that sum.
struct LinearInput {
  LinearInput(at::Tensor x_, std::shared_ptr<SavedInput> again_ = nullptr,
              std::shared_ptr<BesideSum> beside_ = nullptr)
      : x(std::move(x_)), again(std::move(again_)), beside(std::move(beside_)) {}
  at::Tensor x;
  std::shared_ptr<SavedInput> again;
  std::shared_ptr<BesideSum> beside;
};

}  // namespace longhaul::ops
