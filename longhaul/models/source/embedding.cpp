#include "longhaul/models/source/layers.h"

#include <ATen/ATen.h>

namespace longhaul::models::source {

at::Tensor evaluate(const SourceFiles& files, const families::Embedding& embedding,
                    int64_t width, at::ScalarType compute, const at::Tensor& ids,
                    const at::Tensor& positions) {
  const auto rows = [&](const families::Table& table, const at::Tensor& of) {
    return files.rows(table.name + ".weight", table.rows, width, of);
  };
  const at::Tensor scale = at::full({}, embedding.scale, at::kDouble);
  const at::Tensor rounded = embedding.rounds_scale ? scale.to(compute) : scale;
  at::Tensor x = rows(embedding.tokens, ids) * rounded.item<double>();
  if (embedding.types) x = x + rows(*embedding.types, at::zeros_like(ids));
  if (embedding.positions) x = x + rows(*embedding.positions, positions);
  return embedding.norm ? evaluate(files, *embedding.norm, x) : x;
}

}  // namespace longhaul::models::source
