#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace longhaul::ops {

// Matrices that lie side by side in one memory are one matrix, so that one product
// replaces several products with the same input. Nothing is copied to join matrices: the
// functions find out whether tensors lie side by side.

/// Returns the matrix [sum n, K] whose rows are the matrices [n_i, K], in this order, or
/// an undefined tensor if the matrices do not follow each other without a gap.
at::Tensor joined_rows(const std::vector<at::Tensor>& parts);

/// Returns the matrices [n, K] as one tensor [E, n, K], or an undefined tensor if they do
/// not lie at equal distances, one behind another, in one memory.
at::Tensor stacked(const std::vector<at::Tensor>& parts);

/// Returns the matrix [T, sum n] whose columns are the slices [T, n_i], in this order, or
/// an undefined tensor if the slices are not all columns of one matrix.
at::Tensor joined_columns(const std::vector<at::Tensor>& parts);
/// Returns the matrix [T, sum n] whose columns are the slices, contiguous. It is a copy
/// if the slices are not all columns of one matrix.
at::Tensor matrix_of_columns(const std::vector<at::Tensor>& parts);

/// How tensors [T, n_i], [T, heads_i, D] or [B, S, heads_i, D] lie: which tensors make up
/// the columns of one matrix. The nodes of ops lay out gradients in the same way, so that
/// the backward of the product that made the tensors can take the gradients as one
/// matrix.
class ColumnLayout {
 public:
  explicit ColumnLayout(const std::vector<at::Tensor>& parts);
  /// Returns uninitialized tensors of the parts' sizes, laid out like the parts. A part
  /// that is not a slice of a joint matrix gets a contiguous tensor.
  std::vector<at::Tensor> empty(const at::TensorOptions& options) const;
  /// Returns tensors like those of empty(), but `gradients` themselves if they make up
  /// the columns of one matrix, as the parts do. The node that made such gradients has
  /// laid them out for this purpose, so that they may be overwritten.
  std::vector<at::Tensor> reuse(const std::vector<at::Tensor>& gradients) const;
  /// Sets made[part], which empty() or reuse() has made, for a part that was passed on
  /// unchanged. For a slice of a joint matrix, `gradient` is copied into the slice of
  /// made[part]; for any other part, `gradient` itself is taken.
  void hand_on(size_t part, const at::Tensor& gradient,
               std::vector<at::Tensor>& made) const;

 private:
  using Group = std::vector<size_t>;  ///< parts, in the order of the columns
  void fill(const Group& group, const at::TensorOptions& options,
            std::vector<at::Tensor>& out) const;

  std::vector<std::vector<int64_t>> sizes_;
  std::vector<Group> groups_;
};

}  // namespace longhaul::ops
