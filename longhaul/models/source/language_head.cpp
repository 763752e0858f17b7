#include "longhaul/models/source/layers.h"

#include <ATen/ATen.h>

namespace longhaul::models::source {

at::Tensor evaluate(const SourceFiles& files, const families::LanguageHead& head,
                    const at::Tensor& x, const families::Table& tokens) {
  return files.product(evaluate(files, head.norm, x),
                       (head.tied ? tokens.name : head.name) + ".weight", tokens.rows) /
         head.logits_divisor;
}

}  // namespace longhaul::models::source
