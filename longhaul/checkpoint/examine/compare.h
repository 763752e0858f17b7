#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/checkpoint/read/reader.h"

namespace longhaul::checkpoint {

/// How one tensor of two checkpoints differs, over the elements that both checkpoints
/// have.
struct TensorDifference {
  std::string kind;
  std::string name;
  int64_t elements =
      0;  ///< number of compared elements; 0: only one of the checkpoints has the tensor
  double norm = 0.0;        ///< norm of the second checkpoint's tensor
  double difference = 0.0;  ///< norm of the difference, first less second
  double largest = 0.0;     ///< largest absolute difference of an element
  bool same_shape = true;
};

/// The differences of all tensors of two checkpoints.
struct Comparison {
  std::vector<TensorDifference> tensors;  ///< sorted by kind and name

  /// Returns ||a - b|| / (||b|| + 1e-6 times the norm of all tensors of the same kind
  /// together): the measure of the tolerances in docs/numerics.md.
  double relative(const TensorDifference& tensor) const;
};

/// Compares two checkpoints or captures of any two layouts, in fp64, reading parts of at
/// most 64 MiB. Compares float tensors only.
Comparison compare(const CheckpointReader& a, const CheckpointReader& b);

}  // namespace longhaul::checkpoint
