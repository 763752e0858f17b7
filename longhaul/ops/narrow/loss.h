#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/ops/narrow/narrow.h"

namespace longhaul::ops::narrow {

/// The columns of a part of the vocabulary in which the targets of rows lie.
class TargetColumns {
 public:
  /// `targets` is int32 [R], and `begin` is the vocabulary's number of the first of
  /// `columns` columns. A row whose target is negative or in another part has no column.
  TargetColumns(const at::Tensor& targets, int64_t begin, int64_t columns);

  /// Returns the logit of each row's target, fp32 [R], from logits fp32 [R, V]; 0 for a
  /// row without a column.
  at::Tensor picked(const at::Tensor& logits) const;
  /// Returns row_scale (softmax (1 + 2 z_loss lse) - onehot(target)), fp32 [R, V].
  at::Tensor gradient(const at::Tensor& logits, const at::Tensor& lse,
                      const at::Tensor& row_scale, double z_loss) const;

 private:
  at::Tensor is_target_;  ///< bool [R, V]
};

/// Adds up fp32 values [T] by `group`, int32 [T]: fp32 [groups]. A value whose group is
/// `groups` or more counts nowhere.
at::Tensor sum_by_group(const at::Tensor& values, const at::Tensor& group,
                        int64_t groups);

}  // namespace longhaul::ops::narrow
