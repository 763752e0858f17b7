// Tests that a run holds what a unit's description says that its forward keeps, to the
// byte.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "longhaul/families/adapter.h"
#include "longhaul/families/layers/unit_maker.h"
#include "longhaul/layout/shard_plan.h"
#include "longhaul/models/model.h"
#include "longhaul/ops/gated_product.h"
#include "longhaul/ops/linear/linear.h"
#include "longhaul/ops/recomputed.h"
#include "longhaul/ops/rms_norm.h"
#include "longhaul/parallel/context/attention_core.h"
#include "longhaul/parallel/tensor/region.h"
#include "tests/dist/counted_memory.h"
#include "tests/dist/hidden_states.h"
#include "tests/dist/tiny_batch.h"
#include "tests/dist/tiny_models.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/router_terms.h"
#include "tests/support/side_by_side.h"

namespace longhaul {
namespace {

using testing::CountedMemory;
using Recompute = ForwardForm::Recompute;

constexpr int64_t kSequences = 3;

struct KeptCase {
  std::string family = "llama";
  bool tied = false;
  ForwardForm form = {};
  at::ScalarType gradients = at::kFloat;
  int tp = 1;
  bool sequence = false;
  int cp = 1;
  ContextKind context = ContextKind::Ring;
  int64_t seq_len = 20;  ///< of a rank
  bool flat = false;     ///< weights lie side by side, so that products are joint
  /// All linear layers of the blocks are adapted, with those of experts, and the router
  /// is trained.
  std::optional<AdapterKind> adapter = {};

  std::string text() const {
    return fmt::format("{}{}{} {} {}-bit, gradients {}, recompute {}, tp {}{}, cp {}{}",
                       !adapter                       ? ""
                       : adapter == AdapterKind::Dora ? "DoRA of "
                                                      : "LoRA of ",
                       family, tied ? " tied" : "", form.fused ? "fused" : "composite",
                       8 * form.compute_bytes, at::toString(gradients),
                       static_cast<int>(form.recompute), tp, sequence ? " sequence" : "",
                       cp, flat ? ", flat" : "");
  }
  at::ScalarType type() const {
    return form.compute_bytes == 4 ? at::kFloat : at::kBFloat16;
  }
};

/// The bytes that a rank holds in addition to those that lived before: after the forward,
/// after a backward that has put weight gradients off, and after the weight gradients.
struct Held {
  int64_t forward = 0;
  int64_t put_off = 0;
  int64_t end = 0;
};

void bind_zeros(const KeptCase& c, const layout::ShardPlan& plan, int64_t index,
                const models::Model& model) {
  for (const tensor::ParameterPtr& p : model.parameters()) {
    p->set_slice(layout::plan_parameter(plan, {p->slice(), p->split()}, index).slice);
    p->set_frozen(c.adapter && !families::is_of_adapter(p->name()) &&
                  !p->name().ends_with(".gate.weight"));
    p->bind(at::zeros(p->slice().extent, c.type()),
            at::zeros(p->slice().extent, c.gradients));
  }
  if (c.flat) testing::lay_side_by_side(model.parameters());
}

Held measure(const KeptCase& c, const ModelConfig& config, const layout::ShardPlan& plan,
             comm::Communicator& tp, comm::Communicator& cp) {
  const auto model = models::build(config);
  bind_zeros(c, plan, tp.rank(), *model);
  model->prepare(c.seq_len * cp.size(), at::kCPU);
  const parallel::TensorRegion region(tp, plan.sequence);
  nn::ForwardContext context;
  context.batch = testing::tiny_batch(config.description, kSequences, c.seq_len,
                                      c.seq_len * cp.size());
  if (config.description.drops) context.dropout_key = 1;
  nn::Losses losses(testing::scales_of_targets(config.description, 1.0));
  context.losses = &losses;
  context.router = testing::router_of(config.description);
  context.fused = c.form.fused;
  context.selective_recompute = c.form.recompute == Recompute::Selective;
  context.weight_gradients = std::make_shared<ops::WeightGradients>();
  context.weight_gradients->set_immediate(false);
  if (c.tp > 1) context.region = &region;
  if (c.cp > 1) context.attention = parallel::make_attention_core(c.context, cp);
  const at::Tensor one = at::ones({});
  const int64_t before = CountedMemory::live();
  torch::autograd::Edge root;
  {
    const nn::Tensors hidden =
        testing::hidden_states(*model, context, c.form.recompute == Recompute::Full);
    root = torch::autograd::impl::gradient_edge(model->loss(hidden, context));
  }
  Held held;
  held.forward = CountedMemory::live() - before;
  torch::autograd::Engine::get_default_engine().execute({std::exchange(root, {})}, {one},
                                                        false, false, true, {});
  held.put_off = CountedMemory::live() - before;
  context.weight_gradients->drain();
  held.end = CountedMemory::live() - before;
  return held;
}

/// Returns the bytes of the experts' offsets, int32 [E + 1] for each layer. Descriptions
/// leave them out, since they do not grow with the tokens.
int64_t offsets_of_experts(const families::Network& network) {
  int64_t bytes = 0;
  for (const families::Block& block : network.blocks) {
    const families::Experts* experts = families::experts_of(block);
    if (experts != nullptr) bytes += 4 * (experts->router.out + 1);
  }
  return bytes;
}

/// Returns the bytes of the lengths of rows, in fp32, that DoRA keeps. Descriptions leave
/// them out, since they do not grow with the tokens.
int64_t lengths_of_rows(const ModelDescription& model, const layout::ShardPlan& plan,
                        int64_t index) {
  int64_t bytes = 0;
  for (const ParameterDescription& p : model.parameters()) {
    if (!p.name.ends_with("lora_magnitude_vector")) continue;
    bytes +=
        4 *
        layout::plan_parameter(plan, {p.whole(), p.split}, index).slice.num_elements();
  }
  return bytes;
}

void check_one(const KeptCase& c) {
  SCOPED_TRACE(c.text());
  CountedMemory::install();
  ModelConfig config = testing::tiny_model(c.family, c.tied);
  RunConfig run;
  run.adapter.kind = c.adapter;
  run.adapter.rank = 6;
  run.adapter.alpha = 9;
  if (families::has_experts(config.network)) {
    run.adapter.modules.entries = {kAllLinear, "experts.gate_up_proj",
                                   "experts.down_proj"};
  }
  add_adapter(run, config);
  const ModelDescription& model = config.description;
  const layout::ShardPlan plan = {c.tp, c.sequence && c.tp > 1};
  const int64_t tokens = kSequences * c.seq_len;
  const TokenCounts counts = {tokens, plan.sequence ? tokens / c.tp : tokens, kSequences};
  std::vector<Held> held(static_cast<size_t>(c.tp * c.cp));
  comm::run_fake_ranks(
      c.tp * c.cp, [&](const std::shared_ptr<comm::Communicator>& world) {
        const auto tp = world->split(world->rank() / c.tp, world->rank(), "tp");
        const auto cp = world->split(world->rank() % c.tp, world->rank(), "cp");
        held[static_cast<size_t>(world->rank())] = measure(c, config, plan, *tp, *cp);
      });
  for (int rank = 0; rank < c.tp * c.cp; ++rank) {
    KeptBytes kept, put_off;
    for (const UnitDescription& unit : model.units) {
      const bool block = unit.kind == UnitKind::Block;
      kept += unit.forward.kept(c.form, counts, plan.rank(rank % c.tp), block);
      put_off += unit.forward.kept_put_off(c.form, counts, plan.rank(rank % c.tp));
    }
    const Held& mine = held[static_cast<size_t>(rank)];
    const int64_t numbers = offsets_of_experts(config.network);
    const bool blocks_run_again = c.form.recompute == Recompute::Full;
    const int64_t lengths = lengths_of_rows(model, plan, rank % c.tp);
    EXPECT_EQ(mine.forward, kept.total() + (blocks_run_again ? 0 : numbers + lengths))
        << "rank " << rank;
    EXPECT_EQ(mine.put_off, put_off.total() + numbers) << "rank " << rank;
    EXPECT_EQ(mine.end, 0) << "rank " << rank;
  }
}

void check(KeptCase c) {
  for (const bool flat : {false, true}) {
    c.flat = flat;
    check_one(c);
  }
}

std::vector<ForwardForm> every_form() {
  std::vector<ForwardForm> forms;
  for (const Recompute again : {Recompute::None, Recompute::Selective, Recompute::Full}) {
    for (const int64_t bytes : {2, 4}) {
      for (const bool fused : {true, false}) forms.push_back({fused, bytes, again});
    }
  }
  return forms;
}

/// Checks each family in each form. There are four pairs of a dtype of gradients and a
/// place of weights. `make test` tries two of them, which take turns over families and
/// forms, so that each pair meets each form and each family. `make soak` tries the other
/// two.
void check_families(bool soak) {
  size_t turn = 0;
  for (const auto& [family, tied] : testing::tiny_models()) {
    for (const ForwardForm& form : every_form()) {
      for (const bool flat : {false, true}) {
        const bool bf16 = (flat == (turn % 2 == 0)) != soak;
        check_one({.family = family,
                   .tied = tied,
                   .form = form,
                   .gradients = bf16 ? at::kBFloat16 : at::kFloat,
                   .flat = flat});
      }
      ++turn;
    }
    ++turn;
  }
}

TEST(KeptBytes, OfEveryFamilyAndFormAreThoseThatARunHolds) { check_families(false); }

TEST(KeptBytes, OfAdaptersAreThoseThatARunHolds) {
  for (const AdapterKind kind : {AdapterKind::Lora, AdapterKind::Dora}) {
    for (const ForwardForm& form : every_form()) {
      // Both kinds together meet every form.
      if (form.fused == (kind == AdapterKind::Dora)) {
        check_one({.form = form, .flat = true, .adapter = kind});
      }
    }
    for (const bool sequence : {false, true}) {
      check_one({.tp = 2, .sequence = sequence, .adapter = kind});
    }
  }
}

TEST(KeptBytes, OfAdaptersOfExpertsAreThoseThatARunHolds) {
  for (const ForwardForm& form : every_form()) {
    // Half of the forms meet each dtype and each kind of recomputation.
    if (form.fused == (form.compute_bytes == 2)) {
      check_one({.family = "mixtral", .form = form, .adapter = AdapterKind::Lora});
    }
  }
  for (const bool sequence : {false, true}) {
    check_one({.family = "qwen3_moe",
               .tp = 2,
               .sequence = sequence,
               .flat = true,
               .adapter = AdapterKind::Lora});
  }
}

TEST(KeptBytes, DISABLED_OfEveryFamilyAndFormAreThoseThatARunHolds) {
  check_families(true);
}

TEST(KeptBytes, OfEachFormOfANormAreThoseThatARunHolds) {
  CountedMemory::install();
  constexpr int64_t kTokens = 7;
  constexpr int64_t kDim = 6;
  const auto parameter = [](int64_t width, at::ScalarType type) {
    auto made = tensor::make_parameter("w", {width}, {});
    made->set_frozen(false);
    made->bind(at::ones({width}, type), at::zeros({width}));
    return made;
  };
  for (const RmsForm norm :
       {RmsForm::WeightAfterCast, RmsForm::WeightBeforeCast, RmsForm::OnePlusWeight}) {
    for (const ForwardForm& form : every_form()) {
      const KeptCase c{.form = form};
      SCOPED_TRACE(fmt::format("norm {}, {}", static_cast<int>(norm), c.text()));
      families::UnitMaker unit(UnitKind::Head, 0, 0.02);
      const auto x = unit.input(4 * kDim);
      const auto q = unit.input(3 * kDim), k = unit.input(2 * kDim);
      unit.norm("norm", x, norm);
      unit.head_norm("q", q, kDim, norm);
      unit.head_norm("k", k, kDim, norm);
      const auto wide = parameter(4 * kDim, c.type());
      const ops::HeadNorms heads{parameter(kDim, c.type()), parameter(kDim, c.type()),
                                 1e-5, norm};
      const at::Tensor one = at::ones({1}, c.type()).requires_grad_();
      std::vector<torch::autograd::Edge> kept;
      const int64_t before = CountedMemory::live();
      {
        const auto made = [&](at::IntArrayRef shape) { return one.expand(shape) + 1.0; };
        const at::Tensor of_q = made({kTokens, 3, kDim}), of_k = made({kTokens, 2, kDim});
        const auto normed = ops::rms_norm_heads({of_q, of_k, of_k}, heads, form.fused);
        for (const at::Tensor& y :
             {ops::rms_norm(made({kTokens, 4 * kDim}), wide, 1e-5, form.fused, norm),
              normed.q, normed.k}) {
          kept.push_back(torch::autograd::impl::gradient_edge(y));
        }
      }
      EXPECT_EQ(CountedMemory::live() - before,
                unit.take()
                    .forward.kept(form, {kTokens, kTokens, 1}, {}, /*whole_block=*/false)
                    .total());
    }
  }
}

TEST(KeptBytes, OfSplitFeaturesAreThoseOfEachRank) {
  for (const std::string family : {"llama", "qwen3", "gpt_neox", "bert"}) {
    const bool tied = family == "bert";  // both heads
    for (const ForwardForm& form : every_form()) {
      for (const bool sequence : {false, true}) {
        check({.family = family,
               .tied = tied,
               .form = form,
               .tp = 2,
               .sequence = sequence});
      }
    }
    // There are fewer key heads than ranks. Heads, inner features and vocabulary cannot
    // be divided evenly.
    check({.family = family, .tied = tied, .tp = 5, .sequence = true});
    check({.family = family, .tied = tied, .tp = 4, .sequence = false});
  }
}

TEST(KeptBytes, OfSplitSequencesAreThoseOfEachRank) {
  for (const ContextKind kind : {ContextKind::Ring, ContextKind::Gather}) {
    for (const ForwardForm& form : every_form()) {
      check({.form = form, .cp = 2, .context = kind});
    }
    check({.family = "qwen3", .tp = 2, .sequence = true, .cp = 2, .context = kind});
    check({.family = "mistral", .tp = 2, .sequence = true, .cp = 2, .context = kind});
    check({.family = "bert",
           .tied = true,
           .tp = 2,
           .sequence = true,
           .cp = 2,
           .context = kind});
  }
}

/// Returns the bytes that the forward of down(activation(gate) * up) holds.
int64_t held_by_product(const ForwardForm& form, Activation activation) {
  const auto type = form.compute_bytes == 4 ? at::kFloat : at::kBFloat16;
  const auto leaf = [&] { return at::zeros({7, 24}, type).set_requires_grad(true); };
  const at::Tensor of_gate = leaf(), of_up = leaf();
  const auto weight = tensor::make_parameter("w", {10, 24}, {});
  weight->set_frozen(false);
  weight->bind(at::zeros({10, 24}, type), at::zeros({10, 24}));
  const auto queue = std::make_shared<ops::WeightGradients>();
  const auto product = [=, fused = form.fused](const std::vector<at::Tensor>& t) {
    return ops::gated_product(t[0], t[1], activation, fused);
  };
  const int64_t before = CountedMemory::live();
  torch::autograd::Edge root;
  {
    const std::vector<at::Tensor> in = {of_gate.neg(), of_up.neg()};  // keeps nothing
    const ops::LinearInput inner = form.recompute == Recompute::Selective
                                       ? ops::recomputed(product, in)
                                       : product(in);
    root = torch::autograd::impl::gradient_edge(ops::linear(inner, weight, queue));
  }
  return CountedMemory::live() - before;
}

TEST(KeptBytes, OfAGatedProductAreThoseThatARunHoldsWhateverTheActivation) {
  CountedMemory::install();
  families::UnitMaker unit(UnitKind::Block, 0, 0.02);
  const families::Feature gate = unit.input(24), up = unit.input(24);
  unit.matrix("w", 10, unit.gated_product(gate, up), {format::ShardUnit::Elements, 1});
  const UnitForward described = unit.take().forward;
  for (const ForwardForm& form : every_form()) {
    if (form.recompute == Recompute::Full) continue;
    const int64_t kept = described.kept(form, {7, 7, 1}, {}, true).total();
    for (const auto activation :
         {Activation::Silu, Activation::GeluTanh, Activation::GeluExact}) {
      EXPECT_EQ(held_by_product(form, activation), kept)
          << KeptCase{.form = form}.text() << ", activation "
          << static_cast<int>(activation);
    }
  }
}

}  // namespace
}  // namespace longhaul
