#include "longhaul/models/source/layers.h"

#include <ATen/ATen.h>

namespace longhaul::models::source {

at::Tensor evaluate(const SourceFiles& files, const families::LanguageHead& head,
                    const at::Tensor& x, const families::Table& tokens) {
  const at::Tensor logits =
      files.product(evaluate(files, head.norm, x),
                    (head.tied ? tokens.name : head.name) + ".weight", tokens.rows) /
      head.logits_divisor;
  return head.logits_cap == 0.0 ? logits
                                : at::tanh(logits / head.logits_cap) * head.logits_cap;
}

}  // namespace longhaul::models::source
