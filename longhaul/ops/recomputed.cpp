#include "longhaul/ops/recomputed.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/ops/common/node.h"

namespace longhaul::ops {
namespace {

class Recomputation : public SavedInput {
 public:
  Recomputation(TensorFunction f, const std::vector<at::Tensor>& inputs)
      : f_(std::move(f)) {
    // The inputs are detached, since their graph refers to this object.
    for (const at::Tensor& x : inputs) inputs_.push_back(x.detach());
  }

  at::Tensor forward() const { return f_(inputs_); }

  /// Returns the gradients of the inputs. Releases everything except the result, which
  /// other nodes may still take.
  tensor_list backward(const at::Tensor& dy) {
    take();
    const at::Tensor y = std::exchange(y_, {});
    return torch::autograd::grad({y}, std::exchange(inputs_, {}), {dy});
  }

 protected:
  at::Tensor make() override {
    for (at::Tensor& x : inputs_) x.set_requires_grad(true);
    const at::AutoGradMode grad_mode(true);
    y_ = std::exchange(f_, nullptr)(inputs_);
    return y_.detach();
  }

 private:
  TensorFunction f_;
  std::vector<at::Tensor> inputs_;
  at::Tensor y_;  ///< the result with its graph, from make() to backward()
};

struct RecomputedNode : Function<RecomputedNode> {
  static at::Tensor forward(AutogradContext* ctx, std::shared_ptr<Recomputation> again,
                            const at::Tensor& /*a*/,
                            const std::optional<at::Tensor>& /*b*/,
                            const std::optional<at::Tensor>& /*c*/) {
    at::Tensor y = again->forward();
    again->hold();
    save(ctx, std::move(again));
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    auto& again = saved<std::shared_ptr<Recomputation>>(ctx);
    tensor_list result = again->backward(grads[0]);
    again.reset();
    result.resize(3);
    result.insert(result.begin(), Variable());
    return result;
  }
};

}  // namespace

LinearInput recomputed(TensorFunction f, const std::vector<at::Tensor>& inputs) {
  LH_CHECK(!inputs.empty() && inputs.size() <= 3, "recomputed", "{} inputs",
           inputs.size());
  if (!at::GradMode::is_enabled()) return f(inputs);
  const auto again = std::make_shared<Recomputation>(std::move(f), inputs);
  const auto input = [&](size_t i) {
    return i < inputs.size() ? std::optional(inputs[i]) : std::nullopt;
  };
  return {RecomputedNode::apply(again, inputs[0], input(1), input(2)), again};
}

}  // namespace longhaul::ops
