#include "longhaul/ops/row_lengths.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/ops/common/node.h"

namespace longhaul::ops {
namespace {

/// Elements of W that are in memory in fp32 at a time: 16 MiB.
constexpr int64_t kBlockElements = int64_t{1} << 22;

struct RowLengthsNode : Function<RowLengthsNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y,
                            tensor::ParameterPtr magnitude, const at::Tensor& lengths) {
    ctx->save_for_backward({y, lengths});
    const at::Tensor factors = magnitude->weight().to(at::kFloat) / lengths;
    save(ctx, std::move(magnitude));
    return (y.to(at::kFloat) * factors).to(y.scalar_type());
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const tensor::ParameterPtr& magnitude = saved<tensor::ParameterPtr>(ctx);
    const auto tensors = ctx->get_saved_variables();
    const at::Tensor& y = tensors[0];
    const at::Tensor& lengths = tensors[1];
    const at::Tensor dy = grads[0].to(at::kFloat);
    if (!magnitude->frozen()) {
      at::Tensor(magnitude->grad()).add_((dy * y.to(at::kFloat)).sum(0) / lengths);
    }
    const at::Tensor factors = magnitude->weight().to(at::kFloat) / lengths;
    return {(dy * factors).to(y.scalar_type()), Variable(), Variable()};
  }
};

}  // namespace

at::Tensor row_squares(const at::Tensor& w, const at::Tensor& a, const at::Tensor& b,
                       double scale) {
  const at::NoGradGuard no_graph;
  const int64_t rows = w.size(0);
  const int64_t block = std::max<int64_t>(1, kBlockElements / w.size(1));
  const at::Tensor wide_a = a.to(at::kFloat);
  std::vector<at::Tensor> squares;
  for (int64_t row = 0; row < rows; row += block) {
    const int64_t count = std::min(block, rows - row);
    const at::Tensor whole =
        w.narrow(0, row, count).to(at::kFloat) +
        at::mm(b.narrow(0, row, count).to(at::kFloat), wide_a) * scale;
    squares.push_back((whole * whole).sum(1));
  }
  return at::cat(squares);
}

at::Tensor with_row_lengths(const at::Tensor& y, const tensor::ParameterPtr& magnitude,
                            const at::Tensor& lengths) {
  LH_CHECK(y.dim() == 2 && y.size(1) == magnitude->slice().extent[0] &&
               lengths.size(0) == y.size(1),
           "row_lengths", "{} has {} elements and there are {} lengths for {} features",
           magnitude->name(), magnitude->slice().extent[0], lengths.size(0), y.size(-1));
  return RowLengthsNode::apply(y, magnitude, lengths);
}

}  // namespace longhaul::ops
