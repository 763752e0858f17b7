#include "longhaul/parallel/data/unit_runner.h"

#include <ATen/core/grad_mode.h>

#include "longhaul/ops/node.h"

namespace longhaul::parallel {
namespace {

using ops::AutogradContext;
using ops::tensor_list;
using ops::Variable;

struct UnitSaved {
  DataParallel* data;
  UnitUse use;
};

/// Identity before a block; its backward runs when the block's has ended.
struct EntryNode : ops::Function<EntryNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, UnitSaved unit) {
    ops::save(ctx, unit);
    return x.detach();
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const UnitSaved& s = ops::saved<UnitSaved>(ctx);
    s.data->close_gradients(s.use.unit, s.use.last_micro_batch);
    s.data->release(s.use.unit);
    return {grads[0], Variable()};
  }
};

/// Identity after a block; its backward runs before the block's.
struct ExitNode : ops::Function<ExitNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y, UnitSaved unit) {
    ops::save(ctx, unit);
    return y.detach();
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const UnitSaved& s = ops::saved<UnitSaved>(ctx);
    if (s.use.weights_in_backward) {
      s.data->need(s.use.unit);
      s.data->prefetch(s.use.previous);
    }
    s.data->open_gradients(s.use.unit);
    return {grads[0], Variable()};
  }
};

}  // namespace

at::Tensor run_unit(DataParallel& data, const UnitUse& use,
                    const nn::BlockFunction& block, const at::Tensor& x) {
  data.need(use.unit);
  data.prefetch(use.next);
  at::Tensor y;
  if (at::GradMode::is_enabled()) {
    const UnitSaved saved{&data, use};
    y = ExitNode::apply(block(EntryNode::apply(x, saved)), saved);
  } else {
    y = block(x);
  }
  data.release(use.unit);
  return y;
}

}  // namespace longhaul::parallel
