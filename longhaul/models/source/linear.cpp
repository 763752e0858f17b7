#include "longhaul/models/source/layers.h"

#include <ATen/ATen.h>

#include <map>

namespace longhaul::models::source {
namespace {

/// Returns the layer's columns of a product with the whole stored tensor. The rows
/// of the layer's weight lie in runs of `block` rows, one of which begins every
/// `period` rows.
at::Tensor columns_of(const at::Tensor& product, const families::Linear& layer) {
  const StoredForm& form = *layer.stored;
  const at::Tensor r = at::arange(layer.out, at::kLong);
  const at::Tensor run = at::floor_divide(r, form.block);
  return product.index_select(-1,
                              run * form.period + form.first + (r - run * form.block));
}

/// Returns the layer's bias.
at::Tensor bias_of(const SourceFiles& files, const families::Linear& layer) {
  if (!layer.stored) return files.vector(layer.name + ".bias", layer.out);
  const StoredForm& form = *layer.stored;
  return columns_of(files.vector(form.name + ".bias", form.rows), layer);
}

}  // namespace

std::vector<at::Tensor> evaluate_all(const SourceFiles& files,
                                     const std::vector<families::Linear>& layers,
                                     const at::Tensor& x) {
  std::map<std::string, at::Tensor> whole;  // products with whole stored tensors
  std::vector<at::Tensor> out;
  for (const families::Linear& layer : layers) {
    at::Tensor y;
    if (!layer.stored) {
      y = files.product(x, layer.name + ".weight", layer.out);
    } else {
      const StoredForm& form = *layer.stored;
      at::Tensor& product = whole[form.name];
      const std::string name = form.name + ".weight";
      if (!product.defined()) {
        product = form.transposed ? files.transposed_product(x, name, form.rows)
                                  : files.product(x, name, form.rows);
      }
      y = columns_of(product, layer);
    }
    out.push_back(layer.bias ? y + bias_of(files, layer) : y);
  }
  return out;
}

}  // namespace longhaul::models::source
