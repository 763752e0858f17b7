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

/// Returns all rows of a matrix.
at::Tensor matrix_of(const SourceFiles& files, const std::string& name, int64_t rows,
                     int64_t width) {
  return files.rows(name, rows, width, at::arange(rows, at::kLong));
}

/// Returns the result of a layer with a low-rank part, without the bias: y = x W^T.
at::Tensor with_low_rank(const SourceFiles& files, const families::Linear& layer,
                         const at::Tensor& x, const at::Tensor& y) {
  const families::LowRank& form = *layer.adapter;
  const std::string a = families::lora_a(layer), b = families::lora_b(layer);
  const at::Tensor inner = files.product(x, a, form.rank);
  const at::Tensor sum = y + files.product(inner, b, layer.out) * form.scale;
  if (!form.magnitude) return sum;
  const int64_t width = x.size(-1);
  const at::Tensor whole = matrix_of(files, layer.name + ".weight", layer.out, width) +
                           at::mm(matrix_of(files, b, layer.out, form.rank),
                                  matrix_of(files, a, form.rank, width)) *
                               form.scale;
  return sum * files.vector(layer.name + ".lora_magnitude_vector", layer.out) /
         whole.norm(2, {1});
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
    if (layer.adapter) y = with_low_rank(files, layer, x, y);
    out.push_back(layer.bias ? y + bias_of(files, layer) : y);
  }
  return out;
}

}  // namespace longhaul::models::source
