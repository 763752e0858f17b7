#include "longhaul/families/layers/unit_maker.h"

#include <cmath>
#include <cstdlib>

#include "longhaul/base/error.h"
#include "longhaul/families/layers/linear.h"

namespace longhaul::families {
namespace {

constexpr KeptIn kAlways = {.fused = true, .composite_16 = true, .composite_32 = true};
constexpr KeptIn kFused = {.fused = true};
constexpr KeptIn kComposite = {.composite_16 = true, .composite_32 = true};
/// The input of an operation is kept by the fused form. The composite form keeps a copy
/// in fp32 instead, but needs none if activations are fp32.
constexpr KeptIn kOwnCopy = {.fused = true, .composite_32 = true};
constexpr KeptIn kCopied = {.composite_16 = true};

KeptIn unless_again(KeptIn in) {
  in.selective = false;
  return in;
}

/// Returns the first values of A, which torch draws of a uniform distribution whose bound
/// is one over the root of the width (kaiming_uniform_ with a = sqrt(5)).
Init first_a(int64_t width) {
  return {Init::Kind::Uniform, 1.0 / std::sqrt(static_cast<double>(width))};
}

KeptIn if_again(KeptIn in) {
  in.plain = false;
  return in;
}

}  // namespace

Feature UnitMaker::make(KeptTensor tensor, bool again) {
  unit_.forward.tensors.push_back(std::move(tensor));
  again_.push_back(again);
  is_input_.push_back(false);
  return {again_.size() - 1, unit_.forward.tensors.back().width};
}

void UnitMaker::keep(const Feature& x, KeptKind kind, KeptIn in) {
  LH_ASSERT(x.number < again_.size() && at(x).width == x.width,
            "a feature of width {} is of another unit", x.width);
  KeptTensor& tensor = at(x);
  if (tensor.when.empty() && x.number >= unit_.forward.inputs) tensor.kind = kind;
  tensor.when.push_back(again_[x.number] ? unless_again(in) : in);
}

/// Adds one more kept tensor, in fp32, with as many rows as `of`.
void UnitMaker::keep_rows(KeptKind kind, const Feature& of, int64_t width, KeptIn in) {
  KeptTensor rows = {kind, width, at(of).split, at(of).outside, /*fp32=*/true, {in}};
  rows.rows = at(of).rows;
  rows.each = at(of).each;
  make(std::move(rows));
}

Feature UnitMaker::input(int64_t width) {
  LH_ASSERT(again_.size() == unit_.forward.inputs,
            "a unit's inputs come first, not after {} tensors", again_.size());
  ++unit_.forward.inputs;
  return make({.kind = KeptKind::Input, .width = width, .outside = true});
}

void UnitMaker::table(const std::string& name, int64_t rows, int64_t width,
                      std::optional<int64_t> padding_row) {
  add(name, {rows, width}, {Init::Kind::Normal, stddev_},
      {{format::ShardUnit::Vocabulary, 0}});
  unit_.parameters.back().padding_row = padding_row;
  unit_.work.lookups += static_cast<double>(width);
}

void UnitMaker::whole_table(const std::string& name, int64_t rows, int64_t width) {
  add(name, {rows, width}, {Init::Kind::Normal, stddev_}, {});
  unit_.work.lookups += static_cast<double>(width);
}

Feature UnitMaker::looked_up(int64_t width) {
  return make({.width = width, .outside = true});
}

Feature UnitMaker::sum(const Feature& x, const std::vector<Feature>& terms) {
  bool first = true;
  for (const Feature& term : terms) {
    LH_ASSERT(x.width == term.width, "a sum of widths {} and {}", x.width, term.width);
    const auto gradient = gradients_.find(term.number);
    if (gradient == gradients_.end()) continue;
    unit_.forward.put_off[gradient->second].shared = !std::exchange(first, false);
  }
  return make({.width = x.width, .outside = true});
}

Feature UnitMaker::elementwise(const Feature& x) {
  return make({.width = x.width, .split = at(x).split, .outside = at(x).outside});
}

void UnitMaker::stands_last() {
  last_.push_back(std::move(unit_.parameters.back()));
  unit_.parameters.pop_back();
}

UnitDescription UnitMaker::take() {
  for (ParameterDescription& p : last_) unit_.parameters.push_back(std::move(p));
  return std::move(unit_);
}

/// Adds an RMS norm of each of `rows` equal parts of a token by itself.
Feature UnitMaker::norm_of(const std::string& name, const Feature& x, int64_t rows,
                           std::optional<format::ShardSplit> split, RmsForm form) {
  const bool adds_one = form == RmsForm::OnePlusWeight;
  add(name, {x.width / rows}, {adds_one ? Init::Kind::Zeros : Init::Kind::Ones, 0.0},
      split);
  unit_.parameters.back().decays = false;
  keep(x, KeptKind::Norms, kOwnCopy);
  keep_rows(KeptKind::Norms, x, x.width, kCopied);  // x in fp32
  keep_rows(KeptKind::Norms, x, rows, kAlways);     // one over the rms
  KeptTensor same = at(x);
  same.kind = KeptKind::Norms;
  same.fp32 = form != RmsForm::WeightAfterCast;
  same.when = {kComposite};  // before w multiplies it
  make(same);
  same.fp32 = false;
  same.when.clear();
  return make(same);
}

Feature UnitMaker::norm(const std::string& name, const Feature& x, RmsForm form) {
  return norm_of(name, x, 1, {}, form);
}

Feature UnitMaker::head_norm(const std::string& name, const Feature& x, int64_t head_dim,
                             RmsForm form) {
  // Every rank has some of the heads and so holds a part of the gradient.
  return norm_of(name, x, x.width / head_dim, {{format::ShardUnit::None, 0}}, form);
}

Feature UnitMaker::wide_norm(const std::string& name, const Feature& x,
                             format::ShardSplit split) {
  add(name, {x.width}, {Init::Kind::Ones, 0.0}, split);
  unit_.parameters.back().decays = false;
  keep(x, KeptKind::Norms, kAlways);
  // Every rank keeps one over the rms of all heads.
  make({.kind = KeptKind::Norms, .width = 1, .fp32 = true, .when = {kAlways}});
  return make({.kind = KeptKind::Norms, .width = x.width, .split = at(x).split});
}

Feature UnitMaker::layer_norm(const std::string& name, const Feature& x,
                              std::optional<format::ShardSplit> split) {
  add(name + ".weight", {x.width}, {Init::Kind::Ones, 0.0}, split);
  unit_.parameters.back().decays = false;
  bias(name + ".bias", x.width, split);
  keep(x, KeptKind::Norms, kAlways);
  keep_rows(KeptKind::Norms, x, 2, kAlways);  // mean, and one over the deviation
  return make({.kind = KeptKind::Norms,
               .width = x.width,
               .outside = at(x).outside,
               .rows = at(x).rows});
}

Feature UnitMaker::matrix(const std::string& name, int64_t out, const Feature& x,
                          format::ShardSplit split, std::optional<double> stddev) {
  add(name, {out, x.width}, {Init::Kind::Normal, stddev.value_or(stddev_)}, split);
  unit_.parameters.back().joint = multiplied_ == x.number;
  multiplied_ = x.number;
  add_products(static_cast<double>(out), x);
  take_input(x);
  KeptTensor result = {.width = out, .rows = at(x).rows};
  if (split.dim == 0) result.split = split;
  put_off(result);
  const Feature y = make(result);
  gradients_[y.number] = unit_.forward.put_off.size() - 1;
  return y;
}

void UnitMaker::low_rank(const std::string& name, const LowRank& form, const Feature& x,
                         const Feature& y, const format::ShardSplit& split) {
  constexpr format::ShardSplit kWhole = {format::ShardUnit::None, 0};
  const bool by_rows = split.dim == 0;
  add(name + ".lora_A.weight", {form.rank, x.width}, first_a(x.width),
      by_rows ? kWhole : split);
  add(name + ".lora_B.weight", {y.width, form.rank}, {Init::Kind::Zeros, 0.0},
      by_rows ? split : kWhole);
  add_products(static_cast<double>(form.rank), x);
  const Feature inner =
      make({.kind = KeptKind::FeedForward, .width = form.rank, .rows = at(x).rows});
  keep(inner, KeptKind::FeedForward, kAlways);
  add_products(static_cast<double>(y.width), inner);
  // The gradients of the two weights need x, the result of A, and both gradients. That of
  // y, counted for W, is scaled, and so is no tensor that other layers share.
  for (int i = 0; i < 2; ++i) put_off(at(inner));
  gradients_.erase(y.number);
  if (form.dropout > 0.0) {
    KeptTensor dropped = at(x);
    dropped.kind = KeptKind::FeedForward;
    dropped.when = {kAlways};
    make(std::move(dropped));
  }
  if (!form.magnitude) return;
  add(name + ".lora_magnitude_vector", {y.width}, {Init::Kind::RowLengths, 0.0},
      by_rows ? split : kWhole);
  // The result with scaled rows is another tensor.
  KeptTensor unscaled = at(y);
  unscaled.kind = KeptKind::FeedForward;
  unscaled.when = {kAlways};
  make(std::move(unscaled));
}

/// Keeps the input of a linear layer, once for all layers that take it.
void UnitMaker::take_input(const Feature& x) {
  if (is_input_[x.number]) return;
  is_input_[x.number] = true;
  if (at(x).outside) ++unit_.forward.taken;
  put_off(at(x));
  unit_.forward.put_off.back().is_input = x.number < unit_.forward.inputs;
  keep(x, at(x).kind, kAlways);
}

Feature UnitMaker::routed(const Feature& x, const Feature& logits, int64_t top_k,
                          bool normalised) {
  unit_.forward.routed = top_k;
  unit_.forward.routes = logits.width;
  keep_rows(KeptKind::FeedForward, logits, logits.width, kAlways);  // probabilities
  // Each of the top_k choices of a token keeps four int64 numbers (its expert, its token,
  // its row, and its place among all choices) and an fp32 weight. Normalising also keeps
  // the weights before it, and their sum.
  keep_rows(KeptKind::FeedForward, logits, 9 * top_k + (normalised ? top_k + 1 : 0),
            kAlways);
  return make({.kind = KeptKind::FeedForward,
               .width = x.width,
               .rows = KeptRows::Routed,
               .each = top_k});
}

/// Adds matrices of experts. One bucket has the matrices of all experts, for one grouped
/// product. In the memory of a bucket the last parameter comes first, so that the loop
/// goes from the last expert to the first.
void UnitMaker::add_experts(
    const ExpertNames& names, const std::vector<int64_t>& shape, Init init,
    const format::ShardSplit& split, const Feature& x,
    const std::function<std::optional<StoredForm>(int64_t, int64_t)>& form) {
  const auto experts = std::ssize(names), each = std::ssize(names.at(0));
  bool first = true;
  for (int64_t i = experts * each; i-- > 0;) {
    const auto of = std::lldiv(i, each);
    add(names[static_cast<size_t>(of.quot)][static_cast<size_t>(of.rem)], shape, init,
        split);
    of_expert({of.quot, experts});
    unit_.parameters.back().joint = !std::exchange(first, false);
    unit_.parameters.back().other_form = form(of.quot, of.rem);
  }
  const auto elements = static_cast<double>(each * shape[0] * shape[1]);
  const auto top_k = static_cast<double>(at(x).each);
  unit_.work.grouped += elements * top_k;
  unit_.work.unused += elements * (static_cast<double>(experts) - top_k);
}

std::vector<Feature> UnitMaker::expert_matrices(const ExpertNames& names,
                                                const std::string& fused, int64_t out,
                                                const Feature& x,
                                                format::ShardSplit split) {
  const auto experts = std::ssize(names), each = std::ssize(names.at(0));
  StoredForm together{.name = fused, .block = out, .period = out, .matrices = experts};
  together.rows = experts * each * out;
  add_experts(names, {out, x.width}, {Init::Kind::Normal, stddev_}, split, x,
              [&](int64_t expert, int64_t number) -> std::optional<StoredForm> {
                if (fused.empty()) return std::nullopt;
                together.first = (expert * each + number) * out;
                return together;
              });
  take_input(x);
  std::vector<Feature> results;
  for (int64_t i = 0; i < each; ++i) {
    KeptTensor result = {.width = out, .rows = at(x).rows, .each = at(x).each};
    if (split.dim == 0) result.split = split;
    put_off(result);
    results.push_back(make(result));
  }
  return results;
}

void UnitMaker::expert_low_rank(const ExpertNames& names, const std::string& fused,
                                const LowRank& form, int64_t out, const Feature& x,
                                const format::ShardSplit& split) {
  const auto experts = std::ssize(names), each = std::ssize(names.at(0));
  const int64_t rank = form.rank;
  const format::ShardSplit whole = {format::ShardUnit::None, 0};
  const bool by_rows = split.dim == 0;
  ExpertNames a, b = names;
  for (auto& expert : b) {
    a.push_back({expert.front() + ".lora_A.weight"});
    for (std::string& name : expert) name += ".lora_B.weight";
  }
  StoredForm of_a{.name = fused + ".lora_A.weight", .block = rank, .period = rank};
  of_a.rows = experts * rank;
  add_experts(a, {rank, x.width}, first_a(x.width), by_rows ? whole : split, x,
              [&](int64_t expert, int64_t /*number*/) {
                of_a.first = expert * rank;
                return of_a;
              });
  const Feature inner = make({.kind = KeptKind::FeedForward,
                              .width = rank,
                              .rows = at(x).rows,
                              .each = at(x).each});
  keep(inner, KeptKind::FeedForward, kAlways);
  StoredForm of_b{.name = fused + ".lora_B.weight", .block = out, .period = out};
  of_b.rows = each * out;
  of_b.column_period = experts;
  add_experts(b, {out, rank}, {Init::Kind::Zeros, 0.0}, by_rows ? split : whole, inner,
              [&](int64_t expert, int64_t number) {
                of_b.first = number * out;
                of_b.first_column = expert;
                return of_b;
              });
  // The gradients of the two weights need the result of A, and its gradient. The
  // gradients of the results were counted for the experts' own weights.
  for (int i = 0; i < 2; ++i) put_off(at(inner));
}

Feature UnitMaker::gathered(const Feature& x) { return make({.width = x.width}); }

/// Adds the multiplications of a matrix [out, width of x] with each row of x.
void UnitMaker::add_products(double out, const Feature& x) {
  const double products = out * static_cast<double>(x.width);
  const KeptRows rows = at(x).rows;
  if (rows == KeptRows::Sequences) {
    unit_.work.of_sequence += products;
  } else {
    unit_.work.products += rows == KeptRows::Masked ? kMaskedShare * products : products;
  }
}

void UnitMaker::put_off(KeptTensor tensor) {
  tensor.kind = KeptKind::PutOff;
  tensor.when.clear();
  unit_.forward.put_off.push_back(std::move(tensor));
}

void UnitMaker::bias(const std::string& name, int64_t width,
                     std::optional<format::ShardSplit> split) {
  add(name, {width}, {Init::Kind::Zeros, 0.0}, split);
  unit_.parameters.back().decays = false;
}

Feature UnitMaker::rope(const Feature& x, int64_t turned) {
  // All heads share the cosines and sines of each token's position.
  make({KeptKind::Attention, turned, {}, false, /*fp32=*/true, {kComposite}});
  return make({.width = x.width, .split = at(x).split});
}

Feature UnitMaker::attention(const Feature& q, const Feature& k, const Feature& v,
                             int64_t head_dim) {
  for (const Feature& x : {q, k, v}) keep(x, KeptKind::Attention, kAlways);
  // Query heads share key heads, and have results of the width of values.
  const int64_t width = q.width / k.width * v.width;
  unit_.work.attention += static_cast<double>(q.width + width);
  for (const Feature& x : {k, v}) unit_.forward.kept_positions.push_back(x.number);
  keep_rows(KeptKind::Attention, q, q.width / head_dim, unless_again(kAlways));
  const Feature y = make({.width = width, .split = at(q).split}, /*again=*/true);
  keep(y, KeptKind::Attention, kAlways);
  return y;
}

Feature UnitMaker::gated_product(const Feature& gate, const Feature& up, bool weighed) {
  for (const Feature& x : {gate, up}) {
    keep(x, KeptKind::FeedForward, kOwnCopy);
    keep(x, KeptKind::FeedForward, if_again(kCopied));
    keep_rows(KeptKind::FeedForward, x, x.width, unless_again(kCopied));
  }
  keep_rows(KeptKind::FeedForward, gate, gate.width,
            unless_again(kComposite));  // activated
  if (weighed) {
    keep_rows(KeptKind::FeedForward, gate, gate.width, unless_again(kComposite));
  }
  const Feature y = make({.width = gate.width,
                          .split = at(gate).split,
                          .rows = at(gate).rows,
                          .each = at(gate).each},
                         /*again=*/true);
  at(y).kind = KeptKind::FeedForward;
  return y;
}

Feature UnitMaker::gelu(const Feature& up) {
  keep(up, KeptKind::FeedForward, kAlways);
  const Feature y = make({.width = up.width, .split = at(up).split}, /*again=*/true);
  at(y).kind = KeptKind::FeedForward;
  return y;
}

Feature UnitMaker::kept_gelu(const Feature& x) {
  keep(x, KeptKind::Head, kAlways);
  return make({.kind = KeptKind::Head, .width = x.width, .rows = at(x).rows});
}

Feature UnitMaker::tanh(const Feature& x) {
  const Feature y = make({.kind = KeptKind::Head, .width = x.width, .rows = at(x).rows});
  keep(y, KeptKind::Head, kAlways);
  return y;
}

Feature UnitMaker::rows_of(const Feature& x, KeptRows rows) {
  return make({.kind = KeptKind::Head, .width = x.width, .rows = rows});
}

Feature UnitMaker::masked_rows(const Feature& x) {
  // Each masked row keeps its int64 index, which takes the memory of two fp32 elements.
  make({.kind = KeptKind::Batch,
        .width = 2,
        .fp32 = true,
        .when = {kAlways},
        .rows = KeptRows::Masked});
  return rows_of(x, KeptRows::Masked);
}

Feature UnitMaker::first_rows(const Feature& x) {
  return rows_of(x, KeptRows::Sequences);
}

void UnitMaker::loss_head(const std::string& name, int64_t vocabulary, const Feature& x) {
  add(name, {vocabulary, x.width}, {Init::Kind::Normal, stddev_},
      {{format::ShardUnit::Vocabulary, 0}});
  tied_loss_head(vocabulary, x);
}

void UnitMaker::tied_loss_head(int64_t vocabulary, const Feature& x) {
  add_products(static_cast<double>(vocabulary), x);
  unit_.forward.logits += vocabulary;
  unit_.forward.logits_of = at(x).rows;
  make({.kind = KeptKind::Head, .width = x.width, .when = {kAlways}, .rows = at(x).rows});
}

void UnitMaker::cross_entropy(const Feature& logits) {
  make({.kind = KeptKind::Head,
        .width = logits.width,
        .when = {kAlways},
        .rows = at(logits).rows});
}

}  // namespace longhaul::families
