#include "longhaul/ops/narrow/narrow.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <limits>

namespace longhaul::ops::narrow {

at::Tensor block_sums(const at::Tensor& values) {
  at::Tensor flat = values.reshape({-1});
  const int64_t rest = flat.size(0) % kSumBlock;
  if (rest != 0 || flat.size(0) == 0) {
    flat = at::cat({flat, at::zeros({kSumBlock - rest}, flat.options())});
  }
  return at::sum(flat.view({-1, kSumBlock}), {1});
}

at::Tensor log_sum_exp(const at::Tensor& x) {
  const at::Tensor most = at::amax(x, {-1}, /*keepdim=*/true);
  const at::Tensor base =
      most.masked_fill(most == -std::numeric_limits<float>::infinity(), 0.0);
  return (at::log(at::sum(at::exp(x - base), {-1}, /*keepdim=*/true)) + base).squeeze(-1);
}

}  // namespace longhaul::ops::narrow
