#pragma once

#include <cstdint>

#include "longhaul/format/dtype.h"
#include "longhaul/optim/kernels/rounding.h"

// The data of an update that the loops of every device get. This header includes nothing
// that nvcc would not compile.

namespace longhaul::optim {

/// A contiguous range of elements with its state. The arrays do not overlap, except that
/// `weight` may be `master` itself.
struct AdamWRange {
  int64_t count = 0;
  const void* grad = nullptr;  ///< F32 or BF16
  format::DType grad_dtype = format::DType::F32;
  void* master = nullptr;  ///< F32, or BF16: then it is the weight, and `rounding` is set
  void* exp_avg = nullptr;     ///< F32 or BF16
  void* exp_avg_sq = nullptr;  ///< has the dtype of exp_avg
  format::DType moments_dtype = format::DType::F32;
  void* weight = nullptr;  ///< F32 or BF16: the updated master, rounded to nearest even
  format::DType weight_dtype = format::DType::F32;
  /// How a BF16 master and BF16 moments are rounded; null: to the nearest.
  const Rounding* rounding = nullptr;
};

/// The scalars of one update, rounded to fp32 once.
struct AdamWScalars {
  float grad_scale;
  float one_minus_beta1;
  float beta2, one_minus_beta2;
  float eps;
  float keep;         ///< torch: 1 - lr * decay, before the update; hf: 1
  float denom_scale;  ///< torch: sqrt(1 - beta2^t); hf: 1
  /// torch: lr / (1 - beta1^t); hf: lr / (1 - beta1^t) * sqrt(1 - beta2^t)
  float step_size;
  float decay_after;  ///< hf: lr * decay; torch: 0
};

/// The numbers from which at_rate (element.h) makes the scalars of LAMB's second pass.
/// The rate is known only when the pass runs.
struct LambRate {
  double lr;           ///< is multiplied by the rate
  double decay;        ///< weight decay
  double correction1;  ///< 1 - beta1^t
};

}  // namespace longhaul::optim
