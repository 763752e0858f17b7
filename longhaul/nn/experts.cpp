#include "longhaul/nn/experts.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/ops/attached_loss.h"
#include "longhaul/ops/gated_product.h"
#include "longhaul/ops/recomputed.h"

// Shapes: T tokens, k experts of each token, R = T k rows, E experts, H hidden, B
// sequences of S tokens.

namespace longhaul::nn {
namespace {

/// Returns how often each expert was chosen in each of `groups` equal parts of the
/// tokens: fp32 [groups, E]. Only the choices of tokens that are `real` count.
at::Tensor counts_of(const at::Tensor& chosen, const at::Tensor& real, int64_t groups,
                     int64_t experts) {
  const at::Tensor all = chosen.reshape({groups, -1});
  at::Tensor counts =
      at::zeros({groups, experts}, at::TensorOptions(at::kFloat).device(chosen.device()));
  const at::Tensor ones = real.defined()
                              ? real.unsqueeze(1).expand_as(chosen).reshape_as(all)
                              : at::ones_like(all, counts.options());
  return counts.scatter_add_(1, all, ones);
}

/// Returns values [T] or [T, ...] with zeros in the place of padding.
at::Tensor without_padding(const at::Tensor& values, const at::Tensor& real) {
  if (!real.defined()) return values;
  return values.dim() == 1 ? values * real : values * real.unsqueeze(1);
}

using ExpertLayers = std::vector<std::vector<const families::Linear*>>;

/// Returns the gate and up of each expert.
ExpertLayers first_of(const families::Experts& form) {
  ExpertLayers layers;
  for (const families::FeedForward& expert : form.experts) {
    LH_ASSERT(expert.gate, "{} has no gate", expert.up.name);
    layers.push_back({&*expert.gate, &expert.up});
  }
  return layers;
}

/// Returns the down of each expert.
ExpertLayers last_of(const families::Experts& form) {
  ExpertLayers layers;
  for (const families::FeedForward& expert : form.experts) {
    layers.push_back({&expert.down});
  }
  return layers;
}

}  // namespace

Experts::Experts(tensor::ParameterSet& parameters, const families::Experts& form,
                 int64_t layer)
    : router_(parameters, form.router),
      first_(parameters, first_of(form)),
      last_(parameters, last_of(form)),
      activation_(form.experts.front().activation),
      top_k_(form.top_k),
      normalised_(form.normalised),
      layer_(layer) {
  if (form.shared) shared_.emplace(parameters, *form.shared);
}

at::Tensor Experts::chosen_of(const at::Tensor& probabilities,
                              const ForwardContext& context) const {
  RouterPass* pass = context.router.pass.get();
  if (pass != nullptr) {
    const auto known = pass->chosen.find(layer_);
    if (known != pass->chosen.end()) return known->second;
  }
  const auto best = std::get<1>(at::topk(probabilities.detach(), top_k_, -1));
  at::Tensor chosen = std::get<0>(at::sort(best, -1));
  if (pass != nullptr) pass->chosen.emplace(layer_, chosen);
  return chosen;
}

/// Tells the ranks of the experts how many rows they will get, unless they know it since
/// an earlier run of the layer with the same choice.
ExpertDispatch::CountsPtr Experts::announce(const at::Tensor& chosen, int64_t experts,
                                            const RouterContext& router) const {
  if (router.dispatch == nullptr) return nullptr;
  if (!router.pass) return router.dispatch->announce(chosen, experts);
  ExpertDispatch::CountsPtr& counts = router.pass->counts[layer_];
  if (!counts) counts = router.dispatch->announce(chosen, experts);
  return counts;
}

at::Tensor Experts::balance(const at::Tensor& probabilities, const at::Tensor& chosen,
                            const ForwardContext& context) const {
  const RouterContext& router = context.router;
  const at::Tensor& real = context.batch.real;
  const int64_t experts = probabilities.size(1), tokens = probabilities.size(0);
  const auto of_all = static_cast<double>(experts);
  if (router.balance == BalanceKind::Global) {
    const at::Tensor shares = router.shares.select(0, layer_).narrow(0, 0, experts);
    return (probabilities * shares).sum() * of_all;
  }
  if (router.balance == BalanceKind::Pooled) {
    RouterPass& pass = *router.pass;
    const at::Tensor share = counts_of(chosen, real, 1, experts).squeeze(0);
    const at::Tensor sum = probabilities.sum(0);
    pass.shares = pass.layers == 0 ? share : pass.shares + share;
    pass.probability = pass.layers == 0 ? sum : pass.probability + sum;
    ++pass.layers;
    if (pass.layers < router.routers) return {};
    // Shares and probabilities are sums over all tokens and layers. The product is
    // divided here by the number of tokens and layers once, and once more by the term's
    // denominator.
    const at::Tensor product = (pass.shares * pass.probability).sum();
    const auto layers = static_cast<double>(router.routers);
    if (real.defined()) return product * (of_all / layers) / real.sum().clamp_min(1);
    return product * (of_all / (static_cast<double>(tokens) * layers));
  }
  // This is the term of BalanceKind::Sequence. With BalanceKind::Off it is measured too.
  const int64_t sequences = context.batch.rows;
  at::Tensor counts = counts_of(chosen, real, sequences, experts);
  if (router.sum_sequences) router.sum_sequences(counts);
  const at::Tensor sums =
      probabilities.view({sequences, tokens / sequences, experts}).sum(1);
  if (real.defined()) {
    // Each token of a sequence chose top_k_ experts, so that the counts, summed over all
    // ranks, tell the number of its tokens.
    const at::Tensor lengths = counts.sum(1) / static_cast<double>(top_k_);
    return ((sums * counts).sum(1) / lengths.clamp_min(1)).sum() * of_all;
  }
  const auto length = static_cast<double>(context.batch.seq * router.sequence_parts);
  return (sums * counts).sum() * (of_all / length);
}

at::Tensor Experts::with_losses(const at::Tensor& weights, const at::Tensor& logits,
                                const at::Tensor& probabilities, const at::Tensor& chosen,
                                const ForwardContext& context) const {
  if (context.losses == nullptr || !context.router.terms_read) return weights;
  // Every tp rank has all tokens and counts an equal share of the term. SplitRegion and
  // the router's sum group add up the gradients of the shares.
  const double part = context.region == nullptr
                          ? 1.0
                          : 1.0 / static_cast<double>(context.region->ranks());
  at::Tensor out = weights;
  const auto attach = [&](size_t term, const auto& sum_of_tokens) {
    // A term whose scale is 0 is only measured, which needs no graph and no repetition in
    // a recomputation. The scale is 0 on all ranks or on none, since balance() may be
    // collective.
    const double scale = context.losses->scales.at(term);
    if (context.losses->again && scale == 0.0) return;
    const at::AutoGradMode graph(at::GradMode::is_enabled() && scale != 0.0);
    const at::Tensor sum = sum_of_tokens();
    if (!sum.defined()) return;
    const at::Tensor share = sum * part;
    context.losses->add(term, share.detach().to(at::kDouble));
    if (scale != 0.0) out = ops::attach_loss(out, share, scale);
  };
  attach(context.router.balance_term,
         [&] { return balance(probabilities, chosen, context); });
  attach(context.router.z_term, [&] {
    const at::Tensor squares = at::logsumexp(logits, -1).square();
    return without_padding(squares, context.batch.real).sum();
  });
  return out;
}

void Experts::count(const ops::RoutedRows& rows, const at::Tensor& probabilities,
                    const at::Tensor& chosen, const ForwardContext& context) const {
  RouterLoads* loads = context.router.loads;
  const bool again = context.losses != nullptr && context.losses->again;
  if (loads == nullptr || again) return;
  const int64_t experts = probabilities.size(1);
  const at::Tensor& real = context.batch.real;
  loads->counts.select(0, layer_)
      .narrow(0, 0, experts)
      .add_(real.defined() ? counts_of(chosen, real, 1, experts).squeeze(0).to(at::kLong)
                           : rows.offsets.narrow(0, 1, experts) -
                                 rows.offsets.narrow(0, 0, experts));
  const at::Tensor p = probabilities.detach();
  loads->entropy.select(0, layer_).sub_(at::xlogy(p, p).sum());
}

Experts::Choice Experts::choose(const at::Tensor& logits,
                                const ForwardContext& context) const {
  const at::Tensor wide = logits.to(at::kFloat);
  const at::Tensor probabilities = at::softmax(wide, -1);
  const at::Tensor chosen = chosen_of(probabilities, context);
  // The numbers travel while the device sorts and gathers the rows.
  auto counts = announce(chosen, logits.size(1), context.router);
  at::Tensor weights = probabilities.gather(1, chosen);
  if (normalised_) weights = weights / weights.sum(-1, /*keepdim=*/true);
  const at::Tensor counted = without_padding(probabilities, context.batch.real);
  weights = with_losses(weights, wide, counted, chosen, context);
  Choice out{ops::route(chosen, logits.size(1)), {}, std::move(counts)};
  count(out.rows, counted, chosen, context);
  // place[i] is the row of choice i; choice[r] becomes the choice that has row r.
  at::Tensor choice = at::empty_like(out.rows.token);
  const at::Tensor place = out.rows.place.reshape(-1);
  choice.scatter_(0, place, at::arange(place.size(0), place.options()));
  out.weights = weights.reshape(-1).index_select(0, choice);
  return out;
}

at::Tensor Experts::run(ExpertDispatch::Arrived in, const ForwardContext& context) const {
  const auto inner = first_.forward(in.rows, in.offsets, context);
  in.rows.reset();
  const auto product = [activation = activation_,
                        fused = context.fused](const std::vector<at::Tensor>& t) {
    return ops::gated_product(t[0], t[1], activation, fused, t[2]);
  };
  const std::vector<at::Tensor> inputs = {inner[0], inner[1], in.weights};
  const ops::LinearInput weighed =
      context.selective_recompute ? ops::recomputed(product, inputs) : product(inputs);
  return last_.forward(weighed, in.offsets, context)[0];
}

at::Tensor Experts::forward(const at::Tensor& x, const ForwardContext& context) const {
  const ops::LinearInput in = context.enter(x);
  const Choice choice = choose(router_.forward(in, context), context);
  const ExpertDispatch* dispatch = context.router.dispatch;
  at::Tensor y, shared;
  if (dispatch == nullptr) {
    at::Tensor rows = ops::gather_rows(in.x, choice.rows, context.fused);
    if (shared_) shared = shared_->partial(in, context);
    y = run({std::move(rows), choice.weights, choice.rows.offsets}, context);
  } else {
    const auto way =
        dispatch->send(choice.counts, in.x, choice.weights, choice.rows, context.fused);
    // The shared expert is computed while the rows are being sent to other ranks.
    if (shared_) shared = shared_->partial(in, context);
    y = run(dispatch->arrive(way), context);
    y = dispatch->back(way, std::move(y));
  }
  y = ops::sum_rows(y, choice.rows, context.fused);
  return context.leave(shared.defined() ? y + shared : y);
}

}  // namespace longhaul::nn
