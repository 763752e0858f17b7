#pragma once

#include <cstdint>
#include <string_view>

#include "longhaul/config/run_config.h"
#include "longhaul/format/dtype.h"
#include "longhaul/optim/rounding.h"
#include "longhaul/system/isa.h"

namespace longhaul::optim {

/// One contiguous range of elements with its state. Nothing overlaps, but for `weight`,
/// which may be `master` itself.
struct AdamWRange {
  int64_t count = 0;
  const void* grad = nullptr;  ///< F32 or BF16
  DType grad_dtype = DType::F32;
  void* master = nullptr;  ///< F32, or BF16: then it is the weight, and `rounding` is set
  void* exp_avg = nullptr;     ///< F32 or BF16
  void* exp_avg_sq = nullptr;  ///< as exp_avg
  DType moments_dtype = DType::F32;
  void* weight = nullptr;  ///< F32 or BF16: the updated master, rounded to nearest even
  DType weight_dtype = DType::F32;
  /// How a BF16 master is rounded, and BF16 moments with it; null: to the nearest.
  const Rounding* rounding = nullptr;
};

struct AdamWStep {
  AdamConvention convention = AdamConvention::Torch;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double lr = 0.0;
  double weight_decay = 0.0;
  double grad_scale = 1.0;  ///< the clip coefficient
  int64_t update = 1;       ///< counts from 1: bias correction
};

/// One update of a range, in fp32 whatever the storage. Every element is computed by the
/// same IEEE operations, so the bits depend neither on the number of threads nor on the
/// instruction set. Uses OpenMP threads. A dtype that is not named above is refused.
void adamw_update(const AdamWRange& range, const AdamWStep& step, Isa isa = best_isa());

}  // namespace longhaul::optim
