// The tests compare each operation to plain autograd on tensors that require grad, and
// each fused form to its composite form.
#include "longhaul/ops/attention/attention.h"
#include "longhaul/ops/embedding.h"
#include "longhaul/ops/gated_product.h"
#include "longhaul/ops/linear/linear.h"
#include "longhaul/ops/loss_head.h"
#include "longhaul/ops/rms_norm.h"
#include "longhaul/ops/rope.h"
#include "tests/support/parameters.h"

namespace longhaul::ops {
namespace {

class Ops : public ::testing::TestWithParam<std::tuple<at::ScalarType, bool>> {
 protected:
  void SetUp() override { at::manual_seed(1); }
  at::ScalarType type() const { return std::get<0>(GetParam()); }
  bool fused() const { return std::get<1>(GetParam()); }
  at::Tensor random(at::IntArrayRef shape) const { return at::randn(shape).to(type()); }
  double tolerance() const { return tolerance_of(type()); }
};

INSTANTIATE_TEST_SUITE_P(
    All, Ops,
    ::testing::Combine(::testing::Values(at::kFloat, at::kBFloat16), ::testing::Bool()),
    [](const auto& which) {
      return std::string(std::get<0>(which.param) == at::kFloat ? "Fp32" : "Bf16") +
             (std::get<1>(which.param) ? "Fused" : "Composite");
    });

TEST_P(Ops, LinearMatchesAutograd) {
  const at::Tensor x = random({70, 48}), w = random({33, 48}), dy = random({70, 33});
  const auto weight = bound(w);
  const auto queue = std::make_shared<WeightGradients>();
  const at::Tensor mine = leaf(x);
  const at::Tensor y = linear(mine, weight, queue);
  backward(y, dy);
  const at::Tensor wide = leaf(x.to(at::kDouble)), wide_w = leaf(w.to(at::kDouble));
  const at::Tensor reference = at::linear(wide, wide_w);
  backward(reference, dy.to(at::kDouble));
  expect_close(y, reference, tolerance(), "y");
  expect_close(mine.grad(), wide.grad(), tolerance(), "dx");
  expect_close(weight->grad(), wide_w.grad(), tolerance(), "dw");
}

TEST(WeightGradients, OfAWeightThatIsAddedInPiecesAreComplete) {
  at::manual_seed(1);
  // The gradient is made in two whole pieces of rows and a short one.
  const at::Tensor x = at::randn({3, 16}).to(at::kBFloat16);
  const at::Tensor dy = at::randn({3, 2 * 8192 + 100}).to(at::kBFloat16);
  const at::Tensor grad = at::ones({dy.size(1), x.size(1)}, at::kFloat);
  accumulate_weight_gradient(grad, x, dy);
  expect_close(grad, at::mm(dy.to(at::kDouble).t(), x.to(at::kDouble)) + 1.0,
               tolerance_of(at::kBFloat16), "all");
  const at::Tensor last = dy.narrow(1, dy.size(1) - 100, 100).to(at::kDouble);
  expect_close(grad.narrow(0, grad.size(0) - 100, 100),
               at::mm(last.t(), x.to(at::kDouble)) + 1.0, tolerance_of(at::kBFloat16),
               "the last piece");
}

TEST_P(Ops, DeferredWeightGradientsAreBitwiseTheImmediateOnes) {
  const at::Tensor x = random({64, 48}), w = random({32, 48}), dy = random({64, 32});
  const auto now = bound(w), later = bound(w);
  const auto queue = std::make_shared<WeightGradients>();
  const auto run = [&](const tensor::ParameterPtr& weight) {
    for (int i = 0; i < 2; ++i) backward(linear(leaf(x + i), weight, queue), dy);
  };
  run(now);
  queue->set_immediate(false);
  run(later);
  EXPECT_FALSE(queue->empty());
  EXPECT_EQ(later->grad().abs().sum().item<float>(), 0.0F);
  queue->drain();
  EXPECT_TRUE(queue->empty());
  EXPECT_TRUE(at::equal(now->grad(), later->grad()));
}

TEST_P(Ops, UnsetWeightGradientsAreWrittenAndThenAddedTo) {
  const at::Tensor x = random({64, 48}), dy = random({64, 32});
  const auto zeroed = bound(random({32, 48})), unset = bound(zeroed->weight());
  at::Tensor(unset->grad()).fill_(NAN);
  unset->unset_grad();
  for (int i = 0; i < 2; ++i) {
    accumulate_weight_gradient(zeroed->grad(), x + i, dy);
    accumulate_weight_gradient({unset}, x + i, dy);
    EXPECT_FALSE(unset->grad_unset());
    EXPECT_TRUE(at::equal(zeroed->grad(), unset->grad())) << i;
  }
  at::Tensor(unset->grad()).fill_(NAN);
  unset->unset_grad();
  accumulate_weight_gradient({unset}, x.narrow(0, 0, 0), dy.narrow(0, 0, 0));
  EXPECT_EQ(unset->grad().abs().sum().item<float>(), 0.0F) << "of no rows";
}

TEST(LinearOp, RefusesAnInputWithoutGraphInsteadOfLosingGradients) {
  const auto weight = bound(at::ones({2, 2}));
  EXPECT_ANY_THROW(linear(at::ones({1, 2}), weight, std::make_shared<WeightGradients>()));
}

TEST_P(Ops, EmbeddingAddsGradientsOfRepeatedRows) {
  const at::Tensor table = random({10, 16}), dy = random({5, 16});
  const at::Tensor ids = at::tensor({3, 1, 3, 9, 3}, at::kInt);
  const auto weight = bound(table);
  const at::Tensor y = embedding(ids, weight);
  EXPECT_TRUE(at::equal(y, table.index_select(0, ids)));
  backward(y, dy);
  const at::Tensor wide = leaf(table.to(at::kDouble));
  backward(wide.index_select(0, ids), dy.to(at::kDouble));
  expect_close(weight->grad(), wide.grad(), 1e-6, "dtable");
}

TEST_P(Ops, GradientsKeptInBf16AreTheSumsOfFp32RoundedOnce) {
  const at::Tensor x = random({37, 96}), dy = random({37, 96});
  const at::Tensor scale = random({96}), matrix = random({96, 96});
  const auto in_bf16 = [](const at::Tensor& w) {
    const auto parameter = bound(w);
    parameter->bind(w, at::zeros(w.sizes(), at::kBFloat16));
    return parameter;
  };
  const auto norm = bound(scale), narrow_norm = in_bf16(scale);
  backward(rms_norm(leaf(x), norm, 1e-5, fused()), dy);
  backward(rms_norm(leaf(x), narrow_norm, 1e-5, fused()), dy);
  EXPECT_TRUE(at::equal(narrow_norm->grad(), norm->grad().to(at::kBFloat16)));
  const auto projection = bound(matrix), narrow_projection = in_bf16(matrix);
  const auto queue = std::make_shared<WeightGradients>();
  for (int i = 0; i < 2; ++i) {
    backward(linear(leaf(x), projection, queue), dy);
    backward(linear(leaf(x), narrow_projection, queue), dy);
  }
  expect_close(narrow_projection->grad(), projection->grad(), tolerance_of(at::kBFloat16),
               "dw");
}

TEST_P(Ops, RopeRotatesByPositionAndItsBackwardRotatesBack) {
  RopeConfig config;
  config.theta = 10000.0;
  for (const int64_t part : {32, 12}) {  // whole heads, and their first features
    SCOPED_TRACE(part);
    const RopeTable table = make_rope_table(config, part, 64, at::kCPU);
    const at::Tensor x = random({20, 3, 32}), dy = random({20, 3, 32});
    const at::Tensor positions = at::arange(7, 27, at::kInt);
    const at::Tensor mine = leaf(x);
    const at::Tensor y = rope(mine, table, positions, fused());
    backward(y, dy);
    const at::Tensor wide = leaf(x.to(at::kDouble));
    const at::Tensor frequency =
        at::pow(10000.0, at::arange(0, part, 2, at::kDouble) / -part);
    const at::Tensor angle =
        (positions.to(at::kDouble).unsqueeze(1) * frequency).unsqueeze(1);
    const at::Tensor a = wide.narrow(2, 0, part / 2),
                     b = wide.narrow(2, part / 2, part / 2);
    const at::Tensor reference =
        at::cat({a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin(),
                 wide.narrow(2, part, 32 - part)},
                2);
    backward(reference, dy.to(at::kDouble));
    expect_close(y, reference, tolerance(), "y");
    expect_close(mine.grad(), wide.grad(), tolerance(), "dx");
    EXPECT_TRUE(at::equal(y.narrow(2, part, 32 - part), x.narrow(2, part, 32 - part)));
  }
}

struct Yarn {
  double theta, factor;
  int64_t original;
  double fast, slow;
  bool truncate;
  double attention;
  std::vector<double> frequencies;
};

/// What _compute_yarn_parameters of transformers 5.23 gives for heads of 16 features, in
/// fp32.
const std::vector<Yarn> kYarns = {
    {500000.0,
     8.0,
     8192,
     32.0,
     1.0,
     true,
     1.2079441541679836,
     {1.0, 0.193922758, 0.0376060307, 0.00516563747, 0.000589255593, 3.42810235e-05,
      6.64786967e-06, 1.28917316e-06}},
    {10000.0,
     4.0,
     64,
     32.0,
     1.0,
     true,
     1.138629436111989,
     {1.0, 0.237170815, 0.049999997, 0.00790569466, 0.00249999994, 0.000790569466,
      0.000250000012, 7.90569466e-05}},
    {10000.0,
     4.0,
     64,
     8.0,
     2.0,
     false,
     1.138629436111989,
     {1.0, 0.160589159, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466,
      0.000250000012, 7.90569466e-05}},
    {10000.0,
     40.0,
     4096,
     32.0,
     1.0,
     true,
     1.1557219901962608,
     {1.0, 0.316227764, 0.100000001, 0.0239147246, 0.00512499968, 0.000849862176,
      2.49999994e-05, 7.90569447e-06}},
    // The original positions, 4, are too few for a whole turn of any frequency.
    {10000.0,
     4.0,
     4,
     32.0,
     1.0,
     true,
     1.0,
     {1.0, 0.079056941, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466,
      0.000250000012, 7.90569466e-05}},
    // beta_fast and beta_slow are equal, so that both bounds are one number.
    {10000.0,
     2.0,
     64,
     1.0,
     1.0,
     false,
     1.0,
     {1.0, 0.316227764, 0.100000001, 0.0158113893, 0.00499999989, 0.00158113893,
      0.000500000024, 0.000158113893}}};

RopeConfig config_of(const Yarn& yarn) {
  RopeConfig config{.kind = RopeConfig::Kind::Yarn, .theta = yarn.theta};
  config.factor = yarn.factor;
  config.original_max_position_embeddings = yarn.original;
  config.beta_fast = yarn.fast;
  config.beta_slow = yarn.slow;
  config.truncate = yarn.truncate;
  config.attention_factor = yarn.attention;
  return config;
}

TEST(RopeTable, OfYarnHasTheFrequenciesAndTheAttentionFactorOfTransformers) {
  for (size_t c = 0; c < kYarns.size(); ++c) {
    const RopeTable table = make_rope_table(config_of(kYarns[c]), 16, 3000, at::kCPU);
    for (size_t i = 0; i < kYarns[c].frequencies.size(); ++i) {
      // At the last position whose angle is at most 1, the angle tells the frequency most
      // precisely.
      const double frequency = kYarns[c].frequencies[i];
      const auto position =
          std::min<int64_t>(2999, static_cast<int64_t>(1.0 / frequency));
      const auto at = static_cast<int64_t>(i);
      const auto cos = table.cos[position][at].item<double>();
      const auto sin = table.sin[position][at].item<double>();
      SCOPED_TRACE(::testing::Message() << "case " << c << ", frequency " << i);
      EXPECT_NEAR(std::hypot(cos, sin), kYarns[c].attention, 2e-7);
      EXPECT_NEAR(std::atan2(sin, cos) / static_cast<double>(position) / frequency, 1.0,
                  3e-7);
    }
  }
}

TEST_P(Ops, RopeByYarnAndItsBackwardHaveTheAttentionFactor) {
  const Yarn& yarn = kYarns[0];
  const RopeTable table = make_rope_table(config_of(yarn), 16, 64, at::kCPU);
  const at::Tensor x = random({20, 3, 16}), dy = random({20, 3, 16});
  const at::Tensor positions = at::arange(7, 27, at::kInt);
  const at::Tensor mine = leaf(x), wide = leaf(x.to(at::kDouble));
  const at::Tensor y = rope(mine, table, positions, fused());
  backward(y, dy);
  const at::Tensor angle =
      at::outer(positions.to(at::kDouble), at::tensor(yarn.frequencies, at::kDouble))
          .unsqueeze(1);
  const at::Tensor cos = angle.cos() * yarn.attention, sin = angle.sin() * yarn.attention;
  const auto halves = wide.chunk(2, 2);
  const at::Tensor reference =
      at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, 2);
  backward(reference, dy.to(at::kDouble));
  expect_close(y, reference, tolerance(), "y");
  expect_close(mine.grad(), wide.grad(), tolerance(), "dx");
}

constexpr Activation kActivations[] = {Activation::Silu, Activation::GeluTanh,
                                       Activation::GeluExact};

/// Checks the result and the gradients. With `joint` the rows of gate and up lie in one
/// matrix, else each in its own.
void check_gated_product(Activation activation, const at::Tensor& both, bool joint,
                         bool fused, double tolerance) {
  const int64_t width = both.size(1) / 2;
  const at::Tensor dy = at::randn({both.size(0), width}).to(both.scalar_type());
  const at::Tensor mine = leaf(both);
  auto halves = mine.chunk(2, 1);
  if (!joint) halves = {halves[0].contiguous(), halves[1].contiguous()};
  const at::Tensor y = gated_product(halves[0], halves[1], activation, fused);
  EXPECT_EQ(y.scalar_type(), both.scalar_type());
  backward(y, dy);
  const at::Tensor wide = leaf(both.to(at::kDouble));
  const auto parts = wide.chunk(2, 1);
  const at::Tensor reference =
      parts[1] * (activation == Activation::Silu       ? at::silu(parts[0])
                  : activation == Activation::GeluTanh ? at::gelu(parts[0], "tanh")
                                                       : at::gelu(parts[0], "none"));
  backward(reference, dy.to(at::kDouble));
  expect_close(y, reference, tolerance, "y");
  expect_close(mine.grad().chunk(2, 1)[0], wide.grad().chunk(2, 1)[0], tolerance, "gate");
  expect_close(mine.grad().chunk(2, 1)[1], wide.grad().chunk(2, 1)[1], tolerance, "up");
}

TEST_P(Ops, GatedProductMatchesAutograd) {
  for (const Activation activation : kActivations) {
    for (const int64_t width : {1, 40, 77}) {
      for (const bool joint : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << static_cast<int>(activation) << " " << width << " " << joint);
        const at::Tensor both = (4.0 * at::randn({21, 2 * width})).to(type());
        check_gated_product(activation, both, joint, fused(), tolerance());
      }
    }
  }
}

/// Returns attention with a whole score matrix, in the dtype of its inputs.
at::Tensor naive_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionProblem& mask) {
  const at::Tensor& start = mask.document_start;
  const int64_t window = mask.reach();
  const int64_t S = q.size(1), K = k.size(1), group = q.size(2) / k.size(2);
  const auto heads = [](const at::Tensor& x) { return x.transpose(1, 2); };
  const at::Tensor keys = heads(k).repeat_interleave(group, 1);
  const at::Tensor values = heads(v).repeat_interleave(group, 1);
  at::Tensor scores =
      at::matmul(heads(q), keys.transpose(2, 3)) * mask.scale_of<double>(q.size(3));
  if (mask.score_cap > 0.0) {
    scores = at::tanh(scores / mask.score_cap) * mask.score_cap;
  }
  const at::Tensor key = at::arange(K);
  const at::Tensor query = at::arange(K - S, K).unsqueeze(1);
  at::Tensor hidden = key > query;
  if (window < K) hidden = hidden.logical_or(key <= query - window);
  hidden = hidden.unsqueeze(0).repeat({q.size(0), 1, 1});
  if (start.defined()) hidden = hidden.logical_or(key < start.unsqueeze(2));
  scores = scores.masked_fill(hidden.unsqueeze(1), -1e30);
  return heads(at::matmul(at::softmax(scores, -1), values)).contiguous();
}

struct AttentionCase {
  int64_t batch, queries, cached, query_heads, key_heads, dim;
  bool documents;
  std::optional<int64_t> window = {};
  std::optional<double> scale = {};
  double cap = 0.0;
};

void check_attention(const AttentionCase& c, at::ScalarType type, bool fused,
                     double tolerance) {
  const auto random = [&](int64_t length, int64_t heads) {
    return at::randn({c.batch, length, heads, c.dim}).to(type);
  };
  const at::Tensor q = random(c.queries, c.query_heads);
  const at::Tensor k = random(c.cached + c.queries, c.key_heads);
  const at::Tensor v = random(c.cached + c.queries, c.key_heads);
  const at::Tensor dy = random(c.queries, c.query_heads);
  AttentionProblem mask{{c.scale, c.window, c.cap}};
  if (c.documents) {
    at::Tensor& start = mask.document_start;
    start = at::zeros({c.batch, c.queries}, at::kInt);
    for (const int64_t cut : {5L, 130L, 131L, 290L}) {
      if (cut < c.queries) start.narrow(1, cut, c.queries - cut).fill_(cut);
    }
  }
  const at::Tensor mq = leaf(q), mk = leaf(k), mv = leaf(v);
  const at::Tensor y = attention(mq, {mk, mv}, mask, fused);
  backward(y, dy);
  const auto wide = [](const at::Tensor& x) { return leaf(x.to(at::kDouble)); };
  const at::Tensor wq = wide(q), wk = wide(k), wv = wide(v);
  const at::Tensor reference = naive_attention(wq, wk, wv, mask);
  backward(reference, dy.to(at::kDouble));
  expect_close(y, reference, tolerance, "y");
  expect_close(mq.grad(), wq.grad(), tolerance, "dq");
  expect_close(mk.grad(), wk.grad(), tolerance, "dk");
  expect_close(mv.grad(), wv.grad(), tolerance, "dv");
}

TEST_P(Ops, AttentionMatchesTheFullScoreMatrix) {
  check_attention({2, 300, 0, 6, 2, 64, false}, type(), fused(), 2 * tolerance());
  check_attention({1, 65, 0, 4, 4, 32, false}, type(), fused(), 2 * tolerance());
}

TEST_P(Ops, AttentionStopsAtDocumentBoundaries) {
  check_attention({2, 300, 0, 4, 2, 64, true}, type(), fused(), 2 * tolerance());
}

TEST_P(Ops, AttentionSeesCachedPositions) {
  check_attention({1, 1, 77, 4, 2, 64, false}, type(), fused(), 2 * tolerance());
  check_attention({2, 19, 40, 4, 1, 64, false}, type(), fused(), 2 * tolerance());
}

TEST_P(Ops, AttentionSeesNothingBeforeItsWindow) {
  for (const int64_t window : {2, 40, 270, 300}) {
    SCOPED_TRACE(window);
    check_attention({2, 300, 0, 4, 2, 64, false, window}, type(), fused(),
                    2 * tolerance());
    check_attention({2, 300, 0, 4, 2, 32, true, window}, type(), fused(),
                    2 * tolerance());
    check_attention({1, 19, 40, 2, 1, 16, false, window}, type(), fused(),
                    2 * tolerance());
    check_attention({1, 1, 77, 2, 1, 16, false, window}, type(), fused(),
                    2 * tolerance());
  }
}

TEST_P(Ops, AttentionMultipliesScoresByTheScaleOfItsMask) {
  for (const double scale : {0.0078125, 0.3}) {
    SCOPED_TRACE(scale);
    const auto check = [&](AttentionCase c) {
      c.scale = scale;
      check_attention(c, type(), fused(), 2 * tolerance());
    };
    check({2, 300, 0, 4, 2, 64, true, 40});
    check({2, 70, 0, 4, 2, 12, false});  // a head dim that no kernel of ours takes
    check({1, 19, 40, 2, 1, 16, false});
  }
}

TEST_P(Ops, AttentionCapsScoresWithinAWindowAndOverCachedPositions) {
  const auto check = [&](AttentionCase c) {
    c.cap = 0.9;
    check_attention(c, type(), fused(), 2 * tolerance());
  };
  check({2, 300, 0, 4, 2, 64, true, 40, 0.3});
  check({1, 19, 40, 2, 1, 16, false});
}

TEST_P(Ops, LossHeadMatchesAutograd) {
  const int64_t T = 150, K = 24, V = 101;
  const at::Tensor h = random({T, K}), w = random({V, K});
  at::Tensor targets = at::randint(0, V, {T}, at::kLong);
  targets.narrow(0, 10, 20).fill_(-100);
  for (const double z : {0.0, 1e-2}) {
    const auto weight = bound(w);
    const at::Tensor mine = leaf(h);
    const double scale = 1.0 / 130.0;
    const auto result = loss_head(mine, weight, targets, {scale, z, fused()});
    torch::autograd::backward({result.loss}, {});
    const at::Tensor wide = leaf(h.to(at::kDouble)), wide_w = leaf(w.to(at::kDouble));
    const at::Tensor logits = at::linear(wide, wide_w);
    const at::Tensor lse = at::logsumexp(logits, {1});
    const at::Tensor ce = at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum);
    const at::Tensor squares = (lse * lse * (targets >= 0)).sum();
    const at::Tensor reference = scale * (ce + z * squares);
    torch::autograd::backward({reference}, {});
    const double slack = type() == at::kFloat ? 1e-6 : 5e-3;
    EXPECT_NEAR(result.loss.item<double>(), reference.item<double>(),
                slack * reference.item<double>());
    EXPECT_NEAR(result.cross_entropy_sum.item<double>(), ce.item<double>(),
                slack * ce.item<double>());
    expect_close(mine.grad(), wide.grad(), 3 * tolerance(), "dh");
    expect_close(weight->grad(), wide_w.grad(), 3 * tolerance(), "dw");
  }
}

TEST_P(Ops, LossHeadWithABiasIsTheCrossEntropyOfItsLogits) {
  const int64_t T = 150, K = 24, V = 101;
  const at::Tensor h = random({T, K}), w = random({V, K}), b = random({V});
  at::Tensor targets = at::randint(0, V, {T}, at::kLong);
  targets.narrow(0, 10, 20).fill_(-100);
  LossHeadOptions options{1.0 / 130.0, 0.0, fused()};
  options.bias = bound(b);
  const auto weight = bound(w);
  const at::Tensor mine = leaf(h), given = leaf(at::linear(h, w, b));
  const auto result = loss_head(mine, weight, targets, options);
  const auto of_logits = cross_entropy(given, targets, options);
  torch::autograd::backward({result.loss}, {});
  torch::autograd::backward({of_logits.loss}, {});
  const at::Tensor wide = leaf(h.to(at::kDouble)), wide_w = leaf(w.to(at::kDouble)),
                   wide_b = leaf(b.to(at::kDouble));
  const at::Tensor logits = at::linear(wide, wide_w, wide_b);
  logits.retain_grad();
  const at::Tensor ce = at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum);
  torch::autograd::backward({ce / 130.0}, {});
  const double slack = (type() == at::kFloat ? 1e-6 : 5e-3) * ce.item<double>();
  EXPECT_NEAR(result.cross_entropy_sum.item<double>(), ce.item<double>(), slack);
  EXPECT_NEAR(of_logits.cross_entropy_sum.item<double>(), ce.item<double>(), slack);
  expect_close(mine.grad(), wide.grad(), 3 * tolerance(), "dh");
  expect_close(weight->grad(), wide_w.grad(), 3 * tolerance(), "dw");
  expect_close(options.bias->grad(), wide_b.grad(), 3 * tolerance(), "db");
  expect_close(given.grad(), logits.grad(), 3 * tolerance(), "dlogits");
}

TEST_P(Ops, LossHeadCountsEachRowByItsWeight) {
  const int64_t T = 150, K = 24, V = 101;
  const at::Tensor h = random({T, K}), w = random({V, K});
  at::Tensor targets = at::randint(0, V, {T}, at::kLong);
  targets.narrow(0, 10, 20).fill_(-100);
  LossHeadOptions options{1.0 / 130.0, 1e-2, fused()};
  options.row_weights = at::randn({T});
  options.row_weights.narrow(0, 40, 9).zero_();
  const auto weight = bound(w);
  const at::Tensor mine = leaf(h);
  const auto result = loss_head(mine, weight, targets, options);
  torch::autograd::backward({result.loss}, {});
  const at::Tensor wide = leaf(h.to(at::kDouble)), wide_w = leaf(w.to(at::kDouble));
  const at::Tensor logits = at::linear(wide, wide_w);
  const at::Tensor lse = at::logsumexp(logits, {1});
  const at::Tensor ce = at::cross_entropy_loss(logits, targets, {}, at::Reduction::None);
  const at::Tensor rows = ce + 1e-2 * lse * lse * (targets >= 0);
  const at::Tensor reference = (rows * options.row_weights).sum() / 130.0;
  torch::autograd::backward({reference}, {});
  const double size = rows.sum().item<double>() / 130.0;
  EXPECT_NEAR(result.loss.item<double>(), reference.item<double>(),
              (type() == at::kFloat ? 1e-6 : 5e-3) * size);
  expect_close(mine.grad(), wide.grad(), 3 * tolerance(), "dh");
  expect_close(weight->grad(), wide_w.grad(), 3 * tolerance(), "dw");
}

TEST_P(Ops, TokenLogProbsAreThoseOfTheLogits) {
  const int64_t T = 150, K = 24, V = 101;
  const at::Tensor h = random({T, K}), w = random({V, K});
  at::Tensor targets = at::randint(0, V, {T}, at::kLong);
  targets.narrow(0, 10, 20).fill_(-100);
  for (const double cap : {0.0, 2.0}) {
    LossHeadOptions options{1.0, 0.0, fused()};
    options.logits_divisor = 1.5;
    options.logits_cap = cap;
    const auto weight = bound(w);
    const at::Tensor found = token_log_probs(h, weight, targets, options);
    at::Tensor logits = at::linear(h.to(at::kDouble), w.to(at::kDouble)) / 1.5;
    if (cap > 0.0) logits = cap * at::tanh(logits / cap);
    const at::Tensor want =
        -at::cross_entropy_loss(logits, targets, {}, at::Reduction::None);
    EXPECT_EQ(found.scalar_type(), at::kFloat);
    expect_close(found, want, 3 * tolerance(), "log-probabilities");
    EXPECT_EQ(found.narrow(0, 10, 20).abs().max().item<float>(), 0.0F);
    const double sum = -found.sum(at::kDouble).item<double>();
    EXPECT_NEAR(
        loss_head(leaf(h), weight, targets, options).cross_entropy_sum.item<double>(),
        sum, 1e-12 * sum);
  }
}

TEST_P(Ops, LossHeadWithoutGradModeGivesTheSameLoss) {
  const at::Tensor h = random({90, 24}), w = random({300, 24});
  const at::Tensor targets = at::randint(0, 300, {90}, at::kLong);
  const auto weight = bound(w);
  const double with = loss_head(leaf(h), weight, targets, {1.0, 0.0, fused()})
                          .cross_entropy_sum.item<double>();
  const at::NoGradGuard no_grad;
  EXPECT_EQ(
      loss_head(h, weight, targets, {1.0, 0.0, fused()}).cross_entropy_sum.item<double>(),
      with);
}

}  // namespace
}  // namespace longhaul::ops
