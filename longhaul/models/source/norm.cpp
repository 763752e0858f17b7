#include "longhaul/models/source/layers.h"

#include <ATen/ATen.h>

namespace longhaul::models::source {

at::Tensor evaluate(const SourceFiles& files, const families::Norm& norm,
                    const at::Tensor& x) {
  const at::Tensor weight = files.vector(norm.name + ".weight", x.size(-1));
  if (norm.kind == families::Norm::Kind::Layer) {
    const at::Tensor centred = x - x.mean(-1, /*keepdim=*/true);
    const at::Tensor variance = (centred * centred).mean(-1, /*keepdim=*/true);
    return centred * at::rsqrt(variance + norm.eps) * weight +
           files.vector(norm.name + ".bias", x.size(-1));
  }
  const at::Tensor mean = (x * x).mean(-1, /*keepdim=*/true);
  const at::Tensor normed = x * at::rsqrt(mean + norm.eps);
  return norm.form == RmsForm::OnePlusWeight ? normed * (1.0 + weight) : normed * weight;
}

}  // namespace longhaul::models::source
