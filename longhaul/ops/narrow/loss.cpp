#include "longhaul/ops/narrow/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/sum.h>

namespace longhaul::ops::narrow {
namespace {

/// Returns 0, 1, 2 ... below `count`, int32 [1, count], on the device of `like`.
at::Tensor counting(int64_t count, const at::Tensor& like) {
  return at::arange(count, like.options().dtype(at::kInt)).unsqueeze(0);
}

}  // namespace

TargetColumns::TargetColumns(const at::Tensor& targets, int64_t begin, int64_t columns)
    : is_target_((targets - begin).unsqueeze(1) == counting(columns, targets)) {}

at::Tensor TargetColumns::picked(const at::Tensor& logits) const {
  return at::sum(logits.masked_fill(is_target_.logical_not(), 0.0), {1});
}

at::Tensor TargetColumns::gradient(const at::Tensor& logits, const at::Tensor& lse,
                                   const at::Tensor& row_scale, double z_loss) const {
  at::Tensor p = at::exp(logits - lse.unsqueeze(1));
  if (z_loss != 0.0) p.mul_((lse * (2.0 * z_loss) + 1.0).unsqueeze(1));
  return p.sub_(is_target_.to(at::kFloat)).mul_(row_scale.unsqueeze(1));
}

at::Tensor sum_by_group(const at::Tensor& values, const at::Tensor& group,
                        int64_t groups) {
  const at::Tensor belongs = group.unsqueeze(1) == counting(groups, group);
  return at::sum(belongs.to(at::kFloat) * values.unsqueeze(1), {0});
}

}  // namespace longhaul::ops::narrow
