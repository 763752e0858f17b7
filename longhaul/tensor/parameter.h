#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/families/description.h"

namespace longhaul {

/// One trainable tensor as a layer sees it: a handle that a layer asks for its weight
/// when it needs it. A model declares parameters without storage; FlatBuffers gives them
/// views into its buckets. The weight never requires grad and no autograd node may save
/// it: a backward asks the handle again, so that storage can be gathered, released and
/// rewritten.
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
  const TensorSlice& slice() const { return slice_; }
  /// The part of the tensor that this rank holds, before storage is bound: same name and
  /// global shape.
  void set_slice(TensorSlice slice);
  const Init& init() const { return init_; }
  /// Over the ranks of tensor parallelism.
  const std::optional<ShardSplit>& split() const { return split_; }
  /// A row of the whole tensor whose look-ups have no gradient.
  const std::optional<int64_t>& padding_row() const { return padding_row_; }
  void set_padding_row(std::optional<int64_t> row) { padding_row_ = row; }
  /// Without a gradient: nothing is computed for it. So it starts.
  bool frozen() const { return frozen_; }
  void set_frozen(bool frozen) { frozen_ = frozen; }

  /// Local values in the compute dtype, shape slice().extent.
  const at::Tensor& weight() const;
  /// The accumulator in the gradient dtype, shape slice().extent; undefined when frozen.
  /// After unset_grad() it is zeros.
  const at::Tensor& grad() const;

  /// Nothing has been added yet: what the accumulator holds is of no meaning until
  /// somebody asks for it. To fill it with zeros first would be a write and a read of
  /// memory more.
  void unset_grad() { grad_unset_ = true; }
  bool grad_unset() const { return grad_unset_; }
  /// The accumulator for a caller who writes each of its elements; of any content.
  const at::Tensor& grad_to_write() const;

  /// Storage of both, or undefined tensors while it is released. Leaves frozen() and
  /// grad_unset() as they are.
  void bind(at::Tensor weight, at::Tensor grad);

 private:
  TensorSlice slice_;
  Init init_;
  std::optional<ShardSplit> split_;
  std::optional<int64_t> padding_row_;
  at::Tensor weight_;
  at::Tensor grad_;
  mutable bool grad_unset_ = false;
  bool frozen_ = true;
};

using ParameterPtr = std::shared_ptr<Parameter>;

/// A parameter that is the whole tensor `name`.
ParameterPtr make_parameter(std::string name, std::vector<int64_t> shape, Init init,
                            std::optional<ShardSplit> split = {});

}  // namespace longhaul
