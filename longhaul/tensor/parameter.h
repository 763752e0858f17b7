#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/families/description/description.h"

namespace longhaul::tensor {

/// A trainable tensor as a layer sees it: a handle that a layer asks for the weight each
/// time. A model declares parameters without storage; FlatBuffers gives them views into
/// its buckets. The weight never requires a gradient, and no autograd node may save the
/// weight: a backward asks the handle again, so that storage can be gathered, released
/// and rewritten.
class Parameter {
 public:
  explicit Parameter(const ParameterDescription& described)
      : slice_(described.whole()),
        init_(described.init),
        split_(described.split),
        padding_row_(described.padding_row) {}
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const std::string& name() const { return slice_.name; }
  const format::TensorSlice& slice() const { return slice_; }
  /// Sets the part of the tensor that this rank holds. The name and the global shape must
  /// stay the same. Must be called before storage is bound.
  void set_slice(format::TensorSlice slice);
  const Init& init() const { return init_; }
  /// Returns how the tensor is split over the ranks of tensor parallelism.
  const std::optional<format::ShardSplit>& split() const { return split_; }
  /// Returns the row of the whole tensor whose look-ups have no gradient.
  const std::optional<int64_t>& padding_row() const { return padding_row_; }
  void set_padding_row(std::optional<int64_t> row) { padding_row_ = row; }
  /// Returns whether no gradient is computed for the parameter. A new parameter is
  /// frozen.
  bool frozen() const { return frozen_; }
  void set_frozen(bool frozen) { frozen_ = frozen; }

  /// Returns the local values in the compute dtype, of shape slice().extent.
  const at::Tensor& weight() const;
  /// Returns the accumulator in the gradient dtype, of shape slice().extent; undefined if
  /// frozen. Fills it with zeros first after unset_grad().
  const at::Tensor& grad() const;

  /// Marks the accumulator as one to which nothing has been added, so that its content
  /// has no meaning until grad() fills it. Zeros at once would be one more write and read
  /// of the memory.
  void unset_grad() { grad_unset_ = true; }
  bool grad_unset() const { return grad_unset_; }
  /// Returns the accumulator, of any content, to a caller who writes all its elements.
  const at::Tensor& grad_to_write() const;

  /// Sets the storage of weight and gradient, or undefined tensors while the storage is
  /// released. frozen() and grad_unset() stay as they are.
  void bind(at::Tensor weight, at::Tensor grad);

 private:
  format::TensorSlice slice_;
  Init init_;
  std::optional<format::ShardSplit> split_;
  std::optional<int64_t> padding_row_;
  at::Tensor weight_;
  at::Tensor grad_;
  mutable bool grad_unset_ = false;
  bool frozen_ = true;
};

using ParameterPtr = std::shared_ptr<Parameter>;

/// Makes a parameter that is the whole tensor `name`.
ParameterPtr make_parameter(std::string name, std::vector<int64_t> shape, Init init,
                            std::optional<format::ShardSplit> split = {});

}  // namespace longhaul::tensor
