#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace longhaul::ops {

// Matrices that lie side by side in one memory are one matrix: several products with one
// input are then one product. Nothing is copied for that, so each function says whether
// its tensors lie so.

/// Of matrices [n_i, K] the one [sum n, K] that they are the rows of, in this order;
/// undefined where they do not follow each other without a gap.
at::Tensor joined_rows(const std::vector<at::Tensor>& parts);

/// Of slices [T, n_i] the matrix [T, sum n] that they are the columns of, in this order;
/// undefined where they are not all of it.
at::Tensor joined_columns(const std::vector<at::Tensor>& parts);

/// Each [T, heads, D] as [T, heads * D].
std::vector<at::Tensor> as_rows(const std::vector<at::Tensor>& heads);

/// How tensors [T_i, n_i] lie: which of them make up the columns of one matrix. Their
/// gradients are made to lie the same, so that the product that made them can take those
/// as one matrix as well.
class ColumnLayout {
 public:
  explicit ColumnLayout(const std::vector<at::Tensor>& parts);
  /// Tensors of any content that lie so; those that share no matrix are contiguous.
  std::vector<at::Tensor> empty(const at::TensorOptions& options) const;
  /// The same, but `gradients` themselves where they make up such a matrix: who made them
  /// so has made them for that, and they may be written.
  std::vector<at::Tensor> reuse(const std::vector<at::Tensor>& gradients) const;
  /// The part shares its matrix with no other.
  bool is_alone(size_t part) const;

 private:
  using Group = std::vector<size_t>;  ///< parts, in the order of the columns
  void fill(const Group& group, const at::TensorOptions& options,
            std::vector<at::Tensor>& out) const;

  std::vector<int64_t> rows_, widths_;
  std::vector<Group> groups_;
};

}  // namespace longhaul::ops
