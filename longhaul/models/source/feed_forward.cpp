#include "longhaul/models/source/layers.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

namespace longhaul::models::source {
at::Tensor activated(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::Silu:
      return x * at::sigmoid(x);
    case Activation::GeluExact:
      return 0.5 * x * (1.0 + at::erf(x / std::numbers::sqrt2));
    case Activation::GeluTanh:
      break;
  }
  const at::Tensor inside =
      std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + at::tanh(inside));
}

at::Tensor evaluate(const SourceFiles& files, const families::FeedForward& layer,
                    const at::Tensor& x) {
  if (!layer.gate) {
    return evaluate(files, layer.down,
                    activated(evaluate(files, layer.up, x), layer.activation));
  }
  const auto parts = evaluate_all(files, {*layer.gate, layer.up}, x);
  return evaluate(files, layer.down, activated(parts[0], layer.activation) * parts[1]);
}

}  // namespace longhaul::models::source
