#include "longhaul/ops/attached_loss.h"

#include <ATen/ops/full.h>

#include "longhaul/ops/common/node.h"

namespace longhaul::ops {
namespace {

struct LossScale {
  double scale;
  at::TensorOptions options;
};

struct AttachNode : Function<AttachNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& loss, double scale) {
    save(ctx, LossScale{scale, loss.options()});
    return x.detach();
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const LossScale& s = saved<LossScale>(ctx);
    return {grads[0], at::full({}, s.scale, s.options), Variable()};
  }
};

}  // namespace

at::Tensor attach_loss(const at::Tensor& x, const at::Tensor& loss, double scale) {
  return AttachNode::apply(x, loss, scale);
}

}  // namespace longhaul::ops
