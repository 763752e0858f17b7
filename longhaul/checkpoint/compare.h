#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/checkpoint/read/reader.h"

namespace longhaul::checkpoint {

/// How one tensor of two checkpoints differs, over the elements that both have.
struct TensorDifference {
  std::string kind;
  std::string name;
  int64_t elements = 0;     ///< compared; 0: only one of them has it
  double norm = 0.0;        ///< of the second's
  double difference = 0.0;  ///< norm of first less second
  double largest = 0.0;     ///< largest absolute difference of an element
  bool same_shape = true;
};

/// A kind of tensors as a whole.
struct Comparison {
  std::vector<TensorDifference> tensors;  ///< sorted by kind and name

  /// ||a - b|| / (||b|| + 1e-6 times the norm of its kind's tensors together): the
  /// measure of the tolerances in docs/numerics.md.
  double relative(const TensorDifference& tensor) const;
};

/// Compares two checkpoints or captures of any two layouts, in fp64, reading parts of at
/// most 64 MiB. Float tensors only.
Comparison compare(const CheckpointReader& a, const CheckpointReader& b);

}  // namespace longhaul::checkpoint
