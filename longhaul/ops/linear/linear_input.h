#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace longhaul::ops {

/// A tensor that backwards need and that is not kept until then: it is gathered or
/// computed again. It is made at the first take and let go of at the last. Not
/// thread-safe.
class SavedInput {
 public:
  virtual ~SavedInput() = default;
  /// In the forward: one more take will follow.
  void hold() { ++holders_; }
  /// In the backward, once for each hold. Making it may be a collective, so all ranks
  /// take in the same order.
  at::Tensor take();

 protected:
  virtual at::Tensor make() = 0;

 private:
  int64_t holders_ = 0;
  at::Tensor made_;
};

/// What a linear layer is given: x [T, K], and how to have it again in the backward;
/// null: x itself is kept.
struct LinearInput {
  LinearInput(at::Tensor x_, std::shared_ptr<SavedInput> again_ = nullptr)
      : x(std::move(x_)), again(std::move(again_)) {}
  at::Tensor x;
  std::shared_ptr<SavedInput> again;
};

}  // namespace longhaul::ops
