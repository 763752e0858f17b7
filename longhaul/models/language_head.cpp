#include "longhaul/models/head.h"
#include "longhaul/nn/linear.h"
#include "longhaul/nn/loss_head.h"
#include "longhaul/nn/norm.h"
#include "longhaul/ops/products.h"

namespace longhaul::models {
namespace {

class LanguageHead : public Head {
 public:
  LanguageHead(ParameterSet& parameters, const families::LanguageHead& form,
               const ParameterPtr& tokens)
      : norm_(parameters, form.norm),
        weight_(form.tied ? tokens : parameters.take(form.name + ".weight")) {}

  nn::Tensors forward(const nn::Tensors& x,
                      const nn::ForwardContext& context) const override {
    return {norm_.forward(x[0], context)};
  }
  at::Tensor loss(const nn::Tensors& hidden,
                  const nn::ForwardContext& context) const override {
    return nn::loss_head(hidden[0], weight_, 0, context);
  }
  at::Tensor target_rows(const nn::Tensors& hidden,
                         const nn::ForwardContext& context) const override {
    return context.enter(hidden[0]).x.index_select(0,
                                                   nn::rows_with_target(context.batch));
  }
  at::Tensor logits(const at::Tensor& hidden) const override {
    return ops::linear_product(hidden, weight_->weight());
  }

 private:
  nn::Norm norm_;
  ParameterPtr weight_;
};

}  // namespace

std::unique_ptr<Head> make_head(ParameterSet& parameters,
                                const families::LanguageHead& form,
                                const ParameterPtr& tokens) {
  return std::make_unique<LanguageHead>(parameters, form, tokens);
}

}  // namespace longhaul::models
