#include "longhaul/models/source_model.h"

#include <ATen/ATen.h>

#include <map>

#include "longhaul/models/source_parts.h"

// Shapes: B sequences of T tokens, N = B T, H hidden, D head dim.

namespace longhaul::models {
namespace {

/// Returns the projection's columns of a product with the whole stored tensor. The rows
/// of the projection's weight lie in runs of `block` rows, one of which begins every
/// `period` rows.
at::Tensor columns_of(const at::Tensor& product, const families::Projection& projection) {
  const StoredForm& form = *projection.stored;
  const at::Tensor r = at::arange(projection.out, at::kLong);
  const at::Tensor run = at::floor_divide(r, form.block);
  return product.index_select(-1,
                              run * form.period + form.first + (r - run * form.block));
}

}  // namespace

at::Tensor SourceModel::norm(const at::Tensor& x, const families::Norm& norm) const {
  const at::Tensor weight = files_.vector(norm.name + ".weight", x.size(-1));
  if (norm.kind == families::Norm::Kind::Layer) {
    return source::layer_normed(x, weight, files_.vector(norm.name + ".bias", x.size(-1)),
                                norm.eps);
  }
  const at::Tensor mean = (x * x).mean(-1, /*keepdim=*/true);
  const at::Tensor normed = x * at::rsqrt(mean + norm.eps);
  return norm.form == RmsForm::OnePlusWeight ? normed * (1.0 + weight) : normed * weight;
}

at::Tensor SourceModel::bias(const families::Projection& projection) const {
  if (!projection.stored) return files_.vector(projection.name + ".bias", projection.out);
  const StoredForm& form = *projection.stored;
  return columns_of(files_.vector(form.name + ".bias", form.rows), projection);
}

std::vector<at::Tensor> SourceModel::project(
    const at::Tensor& x, const std::vector<families::Projection>& projections) const {
  std::map<std::string, at::Tensor> whole;  // products with whole stored tensors
  std::vector<at::Tensor> out;
  for (const families::Projection& p : projections) {
    at::Tensor y;
    if (!p.stored) {
      y = files_.product(x, p.name + ".weight", p.out);
    } else {
      at::Tensor& product = whole[p.stored->name];
      const std::string name = p.stored->name + ".weight";
      if (!product.defined()) {
        product = p.stored->transposed
                      ? files_.transposed_product(x, name, p.stored->rows)
                      : files_.product(x, name, p.stored->rows);
      }
      y = columns_of(product, p);
    }
    out.push_back(p.bias ? y + bias(p) : y);
  }
  return out;
}

at::Tensor SourceModel::evaluate(const families::Attention& attention,
                                 const at::Tensor& x, const at::Tensor& positions) const {
  const auto parts = project(x, {attention.query, attention.key, attention.value});
  const auto by_head = [&](const at::Tensor& y) {  // [B, heads, T, D]
    return y
        .reshape(
            {-1, positions.size(0), y.size(-1) / attention.head_dim, attention.head_dim})
        .transpose(1, 2);
  };
  at::Tensor q = parts[0], k = parts[1];
  const bool norms = attention.query_norm.has_value();
  if (norms && attention.norms_over_all_heads) {
    q = norm(q, *attention.query_norm);
    k = norm(k, *attention.key_norm);
  }
  q = by_head(q);
  k = by_head(k);
  if (norms && !attention.norms_over_all_heads) {
    q = norm(q, *attention.query_norm);
    k = norm(k, *attention.key_norm);
  }
  if (attention.rotation) {
    const auto& [rope, features] = *attention.rotation;
    q = source::rotated(q, positions, rope, features);
    k = source::rotated(k, positions, rope, features);
  }

  return project(source::attended(q, k, by_head(parts[2]), attention), attention.out);
}

at::Tensor SourceModel::evaluate(const families::FeedForward& layer,
                                 const at::Tensor& x) const {
  if (!layer.gate) {
    return project(source::activated(project(x, layer.up), layer.activation), layer.down);
  }
  const auto parts = project(x, {*layer.gate, layer.up});
  return project(source::activated(parts[0], layer.activation) * parts[1], layer.down);
}

at::Tensor SourceModel::evaluate(const families::Experts& layer, const at::Tensor& x,
                                 const KnownChoice& known) const {
  const at::Tensor logits = project(x, layer.router);
  const at::Tensor p = at::softmax(logits, -1);
  const at::Tensor chosen = source::settled_choice(
      std::get<1>(at::topk(p, layer.top_k, -1)), logits, known.experts, known.roundoff);
  at::Tensor weights = p * at::zeros_like(p).scatter_(-1, chosen, 1.0);
  if (layer.normalised) weights = weights / weights.sum(-1, /*keepdim=*/true);
  at::Tensor y = layer.shared ? evaluate(*layer.shared, x) : at::zeros_like(x);
  for (size_t e = 0; e < layer.experts.size(); ++e) {
    const at::Tensor weight = weights.select(-1, static_cast<int64_t>(e));
    const at::Tensor rows = weight.nonzero().squeeze(1);
    if (rows.numel() == 0) continue;
    const at::Tensor out = evaluate(layer.experts[e], x.index_select(0, rows));
    y.index_add_(0, rows, out * weight.index_select(0, rows).unsqueeze(1));
  }
  return y;
}

at::Tensor SourceModel::embed(const at::Tensor& ids, const at::Tensor& positions) const {
  const families::Embedding& embedding = network_.embedding;
  const auto rows = [&](const families::Table& table, const at::Tensor& of) {
    return files_.rows(table.name + ".weight", table.rows, network_.width, of);
  };
  const at::Tensor scale = at::full({}, embedding.scale, at::kDouble);
  const at::Tensor rounded = embedding.rounds_scale ? scale.to(compute_) : scale;
  at::Tensor x = rows(embedding.tokens, ids) * rounded.item<double>();
  if (embedding.types) x = x + rows(*embedding.types, at::zeros_like(ids));
  if (embedding.positions) x = x + rows(*embedding.positions, positions);
  return embedding.norm ? norm(x, *embedding.norm) : x;
}

at::Tensor SourceModel::layer(int64_t number, const at::Tensor& x,
                              const at::Tensor& positions,
                              const KnownChoice& known) const {
  at::Tensor stream = x;
  for (const families::Step& step : network_.blocks.at(static_cast<size_t>(number))) {
    at::Tensor sum = stream;
    for (const families::Branch& branch : step.branches) {
      const at::Tensor in = branch.before ? norm(stream, *branch.before) : stream;
      at::Tensor y;
      if (const auto* attention = std::get_if<families::Attention>(&branch.core)) {
        y = evaluate(*attention, in, positions);
      } else if (const auto* experts = std::get_if<families::Experts>(&branch.core)) {
        y = evaluate(*experts, in, known);
      } else {
        y = evaluate(std::get<families::FeedForward>(branch.core), in);
      }
      if (branch.after) y = norm(y, *branch.after);
      sum = sum + y * branch.scale;
    }
    stream = step.of_stream ? norm(sum, *step.of_stream) : sum;
  }
  return stream;
}

at::Tensor SourceModel::evaluate(const families::LanguageHead& head,
                                 const at::Tensor& x) const {
  const families::Table& tokens = network_.embedding.tokens;
  return files_.product(norm(x, head.norm),
                        (head.tied ? tokens.name : head.name) + ".weight", tokens.rows) /
         head.logits_divisor;
}

at::Tensor SourceModel::evaluate(const families::BertHead& head,
                                 const at::Tensor& x) const {
  const std::string name = "cls.predictions.";
  const families::Table& words = network_.embedding.tokens;
  const at::Tensor inner = source::activated(
      project(x, {name + "transform.dense", network_.width, true}), head.activation);
  const at::Tensor normed =
      norm(inner, {families::Norm::Kind::Layer, name + "transform.LayerNorm", head.eps});
  return files_.product(normed, words.name + ".weight", words.rows) +
         files_.vector(name + "bias", words.rows);
}

at::Tensor SourceModel::logits(const at::Tensor& x) const {
  return std::visit([&](const auto& head) { return evaluate(head, x); }, network_.head);
}

}  // namespace longhaul::models
