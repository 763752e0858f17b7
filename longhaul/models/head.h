#pragma once

#include <memory>

#include "longhaul/families/network.h"
#include "longhaul/nn/forward_context.h"
#include "longhaul/tensor/parameter_set.h"

namespace longhaul::models {

/// The part of a model behind the last block. The functions of Model call the head's
/// functions of the same names, which model.h describes.
class Head {
 public:
  virtual ~Head() = default;
  virtual nn::Tensors forward(const nn::Tensors& x,
                              const nn::ForwardContext& context) const = 0;
  virtual at::Tensor loss(const nn::Tensors& hidden,
                          const nn::ForwardContext& context) const = 0;
  virtual at::Tensor target_rows(const nn::Tensors& hidden,
                                 const nn::ForwardContext& context) const = 0;
  virtual at::Tensor logits(const at::Tensor& hidden) const = 0;
};

/// Makes a head, which takes its parameters from `parameters`. `tokens` is the
/// embedding's table if the stage has the table: a tied head uses it.
std::unique_ptr<Head> make_head(tensor::ParameterSet& parameters,
                                const families::LanguageHead& form,
                                const tensor::ParameterPtr& tokens);
std::unique_ptr<Head> make_head(tensor::ParameterSet& parameters,
                                const families::BertHead& form,
                                const tensor::ParameterPtr& tokens);

}  // namespace longhaul::models
