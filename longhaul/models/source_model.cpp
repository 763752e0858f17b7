#include "longhaul/models/source_model.h"

#include <ATen/TensorOperators.h>

namespace longhaul::models {

at::Tensor SourceModel::embed(const at::Tensor& ids, const at::Tensor& positions) const {
  return source::evaluate(files_, network_.embedding, network_.width, compute_, ids,
                          positions);
}

at::Tensor SourceModel::layer(int64_t number, const at::Tensor& x,
                              const at::Tensor& positions,
                              const KnownChoice& known) const {
  const auto normed = [&](const std::optional<families::Norm>& norm,
                          const at::Tensor& of) {
    return norm ? source::evaluate(files_, *norm, of) : of;
  };
  at::Tensor stream = x;
  for (const families::Step& step : network_.blocks.at(static_cast<size_t>(number))) {
    at::Tensor sum = stream;
    for (const families::Branch& branch : step.branches) {
      const at::Tensor in = normed(branch.before, stream);
      const at::Tensor y = families::by_kind(
          branch.core,
          [&](const families::Attention& layer) {
            return source::evaluate(files_, layer, in, positions);
          },
          [&](const families::FeedForward& layer) {
            return source::evaluate(files_, layer, in);
          },
          [&](const families::Experts& layer) {
            return source::evaluate(files_, layer, in, known);
          });
      sum = sum + normed(branch.after, y) * branch.scale;
    }
    stream = normed(step.of_stream, sum);
  }
  return stream;
}

at::Tensor SourceModel::logits(const at::Tensor& x) const {
  const families::Table& tokens = network_.embedding.tokens;
  return std::visit(
      [&](const auto& head) { return source::evaluate(files_, head, x, tokens); },
      network_.head);
}

}  // namespace longhaul::models
