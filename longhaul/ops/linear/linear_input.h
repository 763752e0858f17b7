#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace longhaul::ops {

/// A tensor that backward passes need but that is not kept until then: the tensor is
/// gathered or computed again. The tensor is made at the first take() and released at the
/// last. Not thread-safe.
class SavedInput {
 public:
  virtual ~SavedInput() = default;
  /// Announces one more take(). The forward calls this.
  void hold() { ++holders_; }
  /// Returns the tensor. The backward calls this once for each hold(). Making the tensor
  /// may be collective, so all ranks call take() in the same order.
  at::Tensor take();

 protected:
  virtual at::Tensor make() = 0;

 private:
  int64_t holders_ = 0;
  at::Tensor made_;
};

/// The input of a linear layer: x [T, K], and how to have x again in the backward. If
/// `again` is null, x itself is kept.
struct LinearInput {
  LinearInput(at::Tensor x_, std::shared_ptr<SavedInput> again_ = nullptr)
      : x(std::move(x_)), again(std::move(again_)) {}
  at::Tensor x;
  std::shared_ptr<SavedInput> again;
};

}  // namespace longhaul::ops
