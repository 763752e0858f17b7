#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "longhaul/optim/kernels/adamw.h"
#include "longhaul/optim/kernels/lamb.h"

namespace longhaul::optim {

/// A contiguous range of elements with its state. All tensors have one length.
struct AdamWTensors {
  at::Tensor gradient;
  at::Tensor master;  ///< fp32, or bf16 with `rounding`
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
  at::Tensor weight;                      ///< may be master itself
  std::optional<Rounding> rounding = {};  ///< as AdamWRange::rounding
};

/// The number of elements that composite forms, the updates in ATen operations, take at a
/// time. It bounds their fp32 copies. For elements that are rounded at random the number
/// is lower, since they need numbers of 64 bits too.
inline constexpr int64_t kCompositeElements = int64_t{1} << 24;
inline constexpr int64_t kRoundedElements = int64_t{1} << 22;

/// Returns `t` in parts of at most `most` elements, in ascending order. With 0 a part has
/// at most kCompositeElements, or kRoundedElements if `t` is rounded at random.
std::vector<AdamWTensors> parts_of(const AdamWTensors& t, int64_t most = 0);

/// The bias corrections 1 - b1^t and 1 - b2^t of update number t.
struct BiasCorrections {
  explicit BiasCorrections(const AdamWStep& step);
  double first, second;
};

/// The fp32 moments after an update, computed in ATen operations.
struct CompositeMoments {
  CompositeMoments(const AdamWTensors& t, const AdamWStep& step);
  /// Writes the moments to `t`, rounded as `t` says.
  void store(const AdamWTensors& t, int64_t update) const;
  at::Tensor first, second;
};

/// Makes an update of AdamW in ATen operations, on any device, in parts of at most `most`
/// elements (parts_of). This is the reference of the fused form.
void adamw_composite(const AdamWTensors& t, const AdamWStep& step, int64_t most = 0);

/// The number of elements of which add_squares_composite makes an fp64 copy at a time.
inline constexpr int64_t kSquaresElements = int64_t{1} << 20;

/// Adds sum_of_squares of x to `into`, fp64 of one element, on any device. The host does
/// not wait.
void add_squares_composite(const at::Tensor& x, const at::Tensor& into);

/// Returns LAMB's update before its ratio, m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)
/// + decay * p, in fp32.
at::Tensor lamb_direction(const AdamWTensors& t, const AdamWStep& step);

/// Makes the first pass of LAMB (lamb.h) in ATen operations, on any device, in parts of
/// at most `most` elements (parts_of). This is the reference of the fused form. Adds
/// LambSums to `sums`, fp64 [2], on the device. The host does not wait.
void lamb_moments_composite(const AdamWTensors& t, const AdamWStep& step,
                            const at::Tensor& sums, int64_t most = 0);
/// Makes the second pass of LAMB in ATen operations, in parts as the first pass: moves
/// masters by step.lr times `rate`, fp64 of one element, on the device.
void lamb_apply_composite(const AdamWTensors& t, const AdamWStep& step,
                          const at::Tensor& rate, int64_t most = 0);

/// Returns fp32 values rounded to bf16 stochastically, in ATen operations. The bits are
/// those of the fused loops.
at::Tensor rounded_composite(const at::Tensor& x, const Rounding& rounding, RoundingOf of,
                             int64_t update);

/// Writes fp32 values to a tensor of the state `t`, rounded as `t` says.
void store_composite(const at::Tensor& into, const at::Tensor& x, RoundingOf of,
                     const AdamWTensors& t, int64_t update);

}  // namespace longhaul::optim
