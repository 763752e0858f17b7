#include <ATen/TensorOperators.h>

#include "longhaul/models/head.h"
#include "longhaul/nn/linear.h"
#include "longhaul/nn/loss_head.h"
#include "longhaul/nn/norm.h"
#include "longhaul/ops/linear/products.h"

namespace longhaul::models {
namespace {

class LanguageHead : public Head {
 public:
  LanguageHead(tensor::ParameterSet& parameters, const families::LanguageHead& form,
               const tensor::ParameterPtr& tokens)
      : norm_(parameters, form.norm),
        weight_(form.tied ? tokens : parameters.take(form.name + ".weight")),
        divisor_(form.logits_divisor),
        cap_(form.logits_cap) {}

  nn::Tensors forward(const nn::Tensors& x,
                      const nn::ForwardContext& context) const override {
    return {norm_.forward(x[0], context)};
  }
  at::Tensor loss(const nn::Tensors& hidden,
                  const nn::ForwardContext& context) const override {
    return nn::loss_head(hidden[0], weight_, context, divisor_, cap_);
  }
  at::Tensor target_rows(const nn::Tensors& hidden,
                         const nn::ForwardContext& context) const override {
    return context.enter(hidden[0]).x.index_select(0,
                                                   nn::rows_with_target(context.batch));
  }
  at::Tensor logits(const at::Tensor& hidden) const override {
    at::Tensor logits = ops::linear_product(hidden, weight_->weight());
    if (divisor_ != 1.0) logits = logits / divisor_;
    return cap_ == 0.0 ? logits : (logits / cap_).tanh() * cap_;
  }

 private:
  nn::Norm norm_;
  tensor::ParameterPtr weight_;
  double divisor_;
  double cap_;  // 0: none
};

}  // namespace

std::unique_ptr<Head> make_head(tensor::ParameterSet& parameters,
                                const families::LanguageHead& form,
                                const tensor::ParameterPtr& tokens) {
  return std::make_unique<LanguageHead>(parameters, form, tokens);
}

}  // namespace longhaul::models
