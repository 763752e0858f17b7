#include "longhaul/models/source/layers.h"

#include <ATen/ATen.h>

namespace longhaul::models::source {

at::Tensor evaluate(const SourceFiles& files, const families::BertHead& head,
                    const at::Tensor& x, const families::Table& tokens) {
  const std::string name = "cls.predictions.";
  const families::Linear dense{name + "transform.dense", x.size(-1), true};
  const families::Norm norm{families::Norm::Kind::Layer, name + "transform.LayerNorm",
                            head.eps};
  const at::Tensor inner = activated(evaluate(files, dense, x), head.activation);
  return files.product(evaluate(files, norm, inner), tokens.name + ".weight",
                       tokens.rows) +
         files.vector(name + "bias", tokens.rows);
}

}  // namespace longhaul::models::source
