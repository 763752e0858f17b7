#include "longhaul/models/source/layers.h"

#include <ATen/ATen.h>

// Shapes: B sequences of T tokens.

namespace longhaul::models::source {
namespace {

/// Returns the experts of each token, [B T, k]: those of `known` [T, k] if rounding may
/// have led to them, and otherwise those of `right`. `known` belongs to the last
/// sequence, whose logits [B T, E] must be nearly equal for a router of this roundoff. If
/// `known` is undefined or has another k, all tokens have the experts of `right`.
at::Tensor settled_choice(const at::Tensor& right, const at::Tensor& logits,
                          const at::Tensor& known, double roundoff) {
  // The model that made the choice `known` may have a config.json that sends a token to
  // another number of experts.
  if (!known.defined() || known.size(1) != right.size(1)) return right;
  const int64_t tokens = known.size(0);
  const int64_t sequences = right.size(0) / tokens;
  const at::Tensor last = logits.narrow(0, (sequences - 1) * tokens, tokens);
  // A logit is a sum of rounded products. Its error may be a few times the roundoff of
  // the largest logit.
  const at::Tensor off = 8.0 * roundoff * (1.0 + std::get<0>(last.abs().max(-1)));
  const at::Tensor least = std::get<0>(last.gather(1, known).min(-1));
  const at::Tensor bound = std::get<0>(at::topk(last, right.size(1), -1)).select(-1, -1);
  const at::Tensor allowed = least.ge(bound - off).repeat({sequences}).unsqueeze(1);
  return at::where(allowed, known.repeat({sequences, 1}), right);
}

}  // namespace

at::Tensor evaluate(const SourceFiles& files, const families::Experts& layer,
                    const at::Tensor& x, const KnownChoice& known) {
  const at::Tensor logits = evaluate(files, layer.router, x);
  const at::Tensor p = at::softmax(logits, -1);
  const at::Tensor chosen = settled_choice(std::get<1>(at::topk(p, layer.top_k, -1)),
                                           logits, known.experts, known.roundoff);
  at::Tensor weights = p * at::zeros_like(p).scatter_(-1, chosen, 1.0);
  if (layer.normalised) weights = weights / weights.sum(-1, /*keepdim=*/true);
  at::Tensor y = layer.shared ? evaluate(files, *layer.shared, x) : at::zeros_like(x);
  for (size_t e = 0; e < layer.experts.size(); ++e) {
    const at::Tensor weight = weights.select(-1, static_cast<int64_t>(e));
    const at::Tensor rows = weight.nonzero().squeeze(1);
    if (rows.numel() == 0) continue;
    const at::Tensor out = evaluate(files, layer.experts[e], x.index_select(0, rows));
    y.index_add_(0, rows, out * weight.index_select(0, rows).unsqueeze(1));
  }
  return y;
}

}  // namespace longhaul::models::source
