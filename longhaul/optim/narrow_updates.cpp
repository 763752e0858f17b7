#include "longhaul/optim/narrow_updates.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

namespace longhaul::optim {
namespace {

/// Appends the sums of squares of the blocks of x.
void append_squares(const at::Tensor& x, std::vector<at::Tensor>& sums) {
  const int64_t blocks = x.numel() / kBlockElements;
  const int64_t even = blocks * kBlockElements;
  const auto append = [&](const at::Tensor& rows) {
    const at::Tensor wide = rows.to(at::kFloat);
    sums.push_back((wide * wide).sum(1));
  };
  if (blocks > 0) append(x.narrow(0, 0, even).view({blocks, kBlockElements}));
  if (x.numel() > even) append(x.narrow(0, even, x.numel() - even).view({1, -1}));
}

at::Tensor square_sum(const at::Tensor& x) { return block_squares(x).sum(); }

}  // namespace

int64_t num_square_blocks(int64_t count) {
  return (count + kBlockElements - 1) / kBlockElements;
}

at::Tensor block_squares(at::TensorList tensors) {
  std::vector<at::Tensor> sums;
  for (const at::Tensor& x : tensors) append_squares(x, sums);
  return sums.empty() ? at::zeros({0}, at::kFloat) : at::cat(sums);
}

at::Tensor lamb_moments_narrow(const AdamWTensors& t, const AdamWStep& step,
                               layout::FlatRange counted) {
  CompositeMoments(t, step).store(t, step.update);
  if (counted.size() <= 0) return {};
  const auto sum = [&](const at::Tensor& x) {
    return square_sum(x.narrow(0, counted.begin, counted.size())).view({1, 1});
  };
  return at::cat({sum(t.master), sum(lamb_direction(t, step))}, 1);
}

}  // namespace longhaul::optim
