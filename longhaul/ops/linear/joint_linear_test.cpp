// The tests check that one product computes linear layers whose weights lie side by side,
// with the results and gradients of one product for each layer.
#include <algorithm>

#include "longhaul/ops/attention/attention.h"
#include "longhaul/ops/gated_product.h"
#include "longhaul/ops/linear/linear.h"
#include "longhaul/ops/linear/products.h"
#include "longhaul/ops/linear/side_by_side.h"
#include "longhaul/ops/recomputed.h"
#include "longhaul/ops/rms_norm.h"
#include "longhaul/ops/rope.h"
#include "longhaul/tensor/flat_buffers.h"
#include "tests/support/counted.h"
#include "tests/support/parameters.h"

namespace longhaul::ops {
namespace {

constexpr int64_t kIn = 64;

/// Projections in the flat buffers of a run, or each in memory of its own.
struct Layers {
  Layers(const std::vector<int64_t>& widths, bool with_bias, at::ScalarType type,
         bool flat, bool frozen = false) {
    at::manual_seed(3);
    std::vector<tensor::FlatParameter> placed;
    std::vector<at::Tensor> values;
    const auto add = [&](const std::string& name, const at::Tensor& value) {
      const tensor::ParameterPtr p =
          tensor::make_parameter(name, value.sizes().vec(), {});
      placed.push_back({p, {.frozen = frozen}});
      values.push_back(value.to(type));
      if (flat) return p;
      p->set_frozen(frozen);
      p->bind(values.back().clone(), at::zeros(value.sizes(), at::kFloat));
      return p;
    };
    for (size_t i = 0; i < widths.size(); ++i) {
      const std::string name = std::to_string(i);
      projections.push_back({add(name + ".weight", at::randn({widths[i], kIn})), {}});
      if (with_bias) projections[i].bias = add(name + ".bias", at::randn({widths[i]}));
    }
    if (!flat) return;
    tensor::DTypePolicy policy;
    policy.compute = type == at::kFloat ? format::DType::F32 : format::DType::BF16;
    policy.gradients = format::DType::F32;
    buffers.emplace(placed, policy, at::kCPU);
    for (size_t i = 0; i < placed.size(); ++i) {
      at::Tensor(placed[i].parameter->weight()).copy_(values[i]);
    }
  }

  std::vector<Projection> projections;
  std::optional<tensor::FlatBuffers> buffers;
};

/// The results, the gradient of the input, and the gradients of weights and biases.
struct Results {
  std::vector<at::Tensor> y;
  at::Tensor dx;
  std::vector<at::Tensor> dw;
};

Results run(Layers& layers, at::ScalarType type, bool immediate = true) {
  at::manual_seed(4);
  const at::Tensor x = leaf(at::randn({70, kIn}).to(type));
  const auto queue = std::make_shared<WeightGradients>();
  queue->set_immediate(immediate);
  Results results;
  std::vector<at::Tensor> dy;
  const auto y = joint_linear(x, layers.projections, queue);
  for (const at::Tensor& part : y) {
    dy.push_back(at::randn(part.sizes()).to(type));
    results.y.push_back(part.detach().clone());
  }
  torch::autograd::backward(y, dy);
  queue->drain();
  results.dx = x.grad();
  for (const Projection& p : layers.projections) {
    if (!p.weight->frozen()) results.dw.push_back(p.weight->grad());
    if (p.bias && !p.bias->frozen()) results.dw.push_back(p.bias->grad());
  }
  return results;
}

void expect_same(const Results& a, const Results& b, double tolerance) {
  ASSERT_EQ(a.y.size(), b.y.size());
  ASSERT_EQ(a.dw.size(), b.dw.size());
  for (size_t i = 0; i < a.y.size(); ++i) expect_close(a.y[i], b.y[i], tolerance, "y");
  expect_close(a.dx, b.dx, tolerance, "dx");
  for (size_t i = 0; i < a.dw.size(); ++i) {
    expect_close(a.dw[i], b.dw[i], tolerance, "dw " + std::to_string(i));
  }
}

class JointLinear : public ::testing::TestWithParam<at::ScalarType> {};

INSTANTIATE_TEST_SUITE_P(All, JointLinear, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& which) {
                           return which.param == at::kFloat ? "Fp32" : "Bf16";
                         });

TEST_P(JointLinear, GivesTheResultsAndGradientsOfItsProjections) {
  for (const bool with_bias : {false, true}) {
    for (const bool immediate : {false, true}) {
      Layers apart({64, 32, 32}, with_bias, GetParam(), /*flat=*/false);
      Layers flat({64, 32, 32}, with_bias, GetParam(), /*flat=*/true);
      expect_same(run(flat, GetParam(), immediate), run(apart, GetParam(), immediate),
                  tolerance_of(GetParam()));
    }
  }
}

TEST_P(JointLinear, OfFrozenWeightsGivesTheInputsGradientAlone) {
  Layers apart({64, 32}, true, GetParam(), false, /*frozen=*/true);
  Layers flat({64, 32}, true, GetParam(), true, /*frozen=*/true);
  expect_same(run(flat, GetParam()), run(apart, GetParam()), tolerance_of(GetParam()));
}

TEST_P(JointLinear, TakesOnlyWhatLiesSideBySideAsOneProduct) {
  // A bucket begins with the last weight. A weight of 24 rows of 64 elements is no
  // multiple of kFlatAlign, so that a gap follows it.
  const std::vector<std::pair<std::vector<int64_t>, int>> cases = {
      {{64, 32, 32}, 1}, {{64, 24}, 2}, {{24, 64}, 1}, {{64, 24, 32}, 2}};
  for (const auto& [widths, products] : cases) {
    Layers flat(widths, false, GetParam(), true);
    Layers apart(widths, false, GetParam(), false);
    Results mine;
    {
      const Counted counted;
      mine = run(flat, GetParam());
      // Longhaul's own product has one name in the forward and in the backward, and so
      // counts twice.
      const bool own = describe_products(GetParam(), at::kCPU).starts_with("own");
      EXPECT_EQ(counted.of(own ? "longhaul::product" : "aten::linear"),
                own ? 2 * products : products)
          << widths[0] << ' ' << widths[1];
    }
    expect_same(mine, run(apart, GetParam()), tolerance_of(GetParam()));
  }
}

/// Gives copies of a tensor and counts them.
struct Remade : SavedInput {
  explicit Remade(at::Tensor x) : source(std::move(x)) {}
  at::Tensor make() override {
    ++made;
    return source.clone();
  }
  at::Tensor source;
  int made = 0;
};

TEST(JointLinearInput, IsMadeAgainOnceAndNotForFrozenWeights) {
  for (const bool frozen : {false, true}) {
    Layers layers({64, 32}, false, at::kFloat, true, frozen);
    at::manual_seed(4);
    const at::Tensor x = leaf(at::randn({70, kIn}));
    const auto again = std::make_shared<Remade>(x.detach());
    const auto queue = std::make_shared<WeightGradients>();
    queue->set_immediate(false);
    const auto y = joint_linear({x, again}, layers.projections, queue);
    torch::autograd::backward(y, {at::ones({70, 64}), at::ones({70, 32})});
    EXPECT_EQ(again->made, 0);
    queue->drain();
    EXPECT_EQ(again->made, frozen ? 0 : 1);
    EXPECT_ANY_THROW(again->take()) << "held more often than taken";
    if (frozen) continue;
    const at::Tensor sum = x.detach().sum(0).expand({32, kIn});
    expect_close(layers.projections[1].weight->grad(), sum, 1e-5, "dw");
  }
}

TEST(JointLinearInput, HasTheSameGradientBitsWhereverTheWeightsLie) {
  at::manual_seed(6);
  const at::Tensor x = at::randn({70, kIn}).to(at::kBFloat16);
  const at::Tensor dy = at::randn({70, 32}).to(at::kBFloat16);
  // Each tensor has one storage, and the storages are in ascending order of their
  // addresses.
  std::vector<at::Tensor> places(3);
  for (at::Tensor& place : places) place = at::empty({32, kIn}, x.options());
  std::ranges::sort(places, {}, [](const at::Tensor& t) {
    return reinterpret_cast<uintptr_t>(t.data_ptr());
  });
  std::vector<at::Tensor> values(3), dx;
  for (at::Tensor& value : values) value = at::randn({32, kIn});
  std::vector<size_t> order = {0, 1, 2};
  do {
    std::vector<Projection> projections;
    for (size_t i = 0; i < order.size(); ++i) {
      const tensor::ParameterPtr weight = tensor::make_parameter("w", {32, kIn}, {});
      weight->bind(places[order[i]].copy_(values[i]), {});
      projections.push_back({weight, nullptr});
    }
    const at::Tensor in = leaf(x);
    torch::autograd::backward(
        joint_linear(in, projections, std::make_shared<WeightGradients>()), {dy, dy, dy});
    dx.push_back(in.grad());
    EXPECT_TRUE(at::equal(dx.front(), dx.back())) << order[0] << order[1] << order[2];
  } while (std::ranges::next_permutation(order).found);
}

/// Returns columns of a matrix [T, 128] as heads of 16 features, in the order k, v, q.
std::vector<at::Tensor> heads_in(const at::Tensor& matrix) {
  const auto part = [&](int64_t from, int64_t heads) {
    return matrix.narrow(1, from * 16, heads * 16).view({-1, heads, 16});
  };
  return {part(4, 4), part(0, 2), part(2, 2)};
}

TEST(RopeInPlace, IsRopeWithGradientsThatLieAsTheHeadsDo) {
  RopeConfig config;
  config.theta = 10000.0;
  const at::Tensor positions = at::arange(7, 27, at::kInt);
  // The test takes kernels, and operations of LibTorch if a dtype or a device has no
  // kernels.
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    for (const int64_t part : {16, 6}) {
      SCOPED_TRACE(part);
      at::manual_seed(7);
      const RopeTable table = make_rope_table(config, part, 64, at::kCPU);
      const std::vector<at::Tensor> x = heads_in(at::randn({20, 128}).to(type));
      const std::vector<at::Tensor> dy = heads_in(at::randn({20, 128}).to(type));
      std::vector<at::Tensor> y, dx;
      for (size_t i = 0; i < 3; ++i) {
        const at::Tensor in = leaf(x[i]);
        y.push_back(i == 2 ? in * 1.0 : rope(in, table, positions, false));
        backward(y[i], dy[i]);
        dx.push_back(in.grad());
      }
      for (const bool together : {true, false}) {
        const at::Tensor matrix = at::empty({20, 128}, x[0].options());
        std::vector<at::Tensor> in = heads_in(matrix), given(3);
        for (size_t i = 0; i < 3; ++i) {
          in[i].copy_(x[i]);
          in[i] = in[i].detach().set_requires_grad(true);
        }
        const Heads out = rope_in_place({in[0], in[1], in[2]}, table, positions);
        const at::Tensor gradient = at::empty({20, 128}, x[0].options());
        for (size_t i = 0; i < 3; ++i) {
          given[i] = together ? heads_in(gradient)[i].copy_(dy[i])
                              : dy[i].clone(at::MemoryFormat::Contiguous);
        }
        const auto mine =
            torch::autograd::grad({out.q, out.k, out.v}, {in[0], in[1], in[2]}, given);
        const std::vector<at::Tensor> results = {out.q, out.k, out.v};
        std::vector<at::Tensor> rows;
        for (const size_t i : {1, 2, 0}) rows.push_back(mine[i].flatten(1));
        ASSERT_TRUE(joined_columns(rows).defined());
        EXPECT_EQ(rows[0].is_alias_of(gradient), together) << "who owns it is written";
        for (size_t i = 0; i < 3; ++i) {
          EXPECT_TRUE(results[i].is_alias_of(matrix));
          expect_close(results[i], y[i], tolerance_of(type), "y");
          expect_close(mine[i], dx[i], tolerance_of(type), "dx");
        }
      }
    }
  }
}

/// What a block does to its heads before attention.
enum class Before { Nothing, Rotation, NormsAndRotation };

/// The attention and the feed-forward, down(swiglu), of a block. One product computes
/// queries, keys and values, another one gate and up.
struct Block {
  explicit Block(at::ScalarType type, bool flat)
      : qkv({128, 64, 64}, true, type, flat),
        inner({96, 96}, false, type, flat),
        norms{bound(at::randn({32}).to(type)), bound(at::randn({32}).to(type)), 1e-5} {}

  at::Tensor forward(const at::Tensor& x, const WeightGradientsPtr& queue, Before before,
                     bool again) {
    const auto h = joint_linear(x, qkv.projections, queue);
    Heads heads{h[0].view({70, 4, 32}), h[1].view({70, 2, 32}), h[2].view({70, 2, 32})};
    if (before == Before::NormsAndRotation) heads = rms_norm_heads(heads, norms, true);
    if (before != Before::Nothing) {
      RopeConfig config;
      config.theta = 10000.0;
      // Only 24 of the 32 features of each head are rotated.
      heads = rope_in_place(heads, make_rope_table(config, 24, 70, at::kCPU),
                            at::arange(70, at::kInt));
    }
    const TensorFunction core = [](const std::vector<at::Tensor>& t) {
      return attention(t[0], {t[1], t[2]}, {}, true).view({70, -1});
    };
    const TensorFunction product = [](const std::vector<at::Tensor>& t) {
      return gated_product(t[0], t[1], Activation::Silu, true);
    };
    const std::vector<at::Tensor> seen = {heads.q.view({2, 35, 4, 32}),
                                          heads.k.view({2, 35, 2, 32}),
                                          heads.v.view({2, 35, 2, 32})};
    const auto wide = joint_linear(x, inner.projections, queue);
    return at::cat({again ? recomputed(core, seen).x : core(seen),
                    again ? recomputed(product, wide).x : product(wide)},
                   1);
  }

  Layers qkv, inner;
  HeadNorms norms;
};

struct BlockRun {
  Results results;
  int products = 0, copies = 0;
};

BlockRun run_block(at::ScalarType type, bool flat, Before before, bool again) {
  Block block(type, flat);
  at::manual_seed(5);
  const at::Tensor x = leaf(at::randn({70, kIn}).to(type));
  const auto queue = std::make_shared<WeightGradients>();
  const at::Tensor dy = at::randn({70, 128 + 96}).to(type);
  BlockRun out;
  const at::Tensor y = block.forward(x, queue, before, again);
  {
    const Counted counted;
    backward(y, dy);
    out.products = counted.of("aten::mm");
    out.copies = counted.of("aten::cat") + counted.of("aten::copy_");
  }
  out.results = {{y.detach()}, x.grad(), {block.norms.q->grad(), block.norms.k->grad()}};
  for (const Layers* layers : {&block.qkv, &block.inner}) {
    for (const Projection& p : layers->projections) {
      out.results.dw.push_back(p.weight->grad());
      if (p.bias) out.results.dw.push_back(p.bias->grad());
    }
  }
  return out;
}

TEST_P(JointLinear, OfABlockIsOneProductWithoutCopiesInTheBackward) {
  const at::ScalarType type = GetParam();
  for (const Before before :
       {Before::Nothing, Before::Rotation, Before::NormsAndRotation}) {
    for (const bool again : {true, false}) {
      SCOPED_TRACE(static_cast<int>(before));
      const BlockRun joint = run_block(type, true, before, again);
      const BlockRun apart = run_block(type, false, before, again);
      expect_same(joint.results, apart.results, 2 * tolerance_of(type));
      // Both runs copy the gradients of the two slices of y. With norms, attention takes
      // queries and keys from tensors outside of the matrix of the joint product, so that
      // the gradient of the values is copied into the gradient of this matrix.
      const int of_values = before == Before::NormsAndRotation ? 1 : 0;
      EXPECT_LE(joint.copies, apart.copies + of_values) << again;
      EXPECT_EQ(5 * joint.products, 2 * apart.products);
    }
  }
}

}  // namespace
}  // namespace longhaul::ops
