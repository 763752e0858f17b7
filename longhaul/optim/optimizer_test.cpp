#include "longhaul/optim/optimizer.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/sin.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "longhaul/comm/backend.h"
#include "longhaul/optim/composite_updates.h"
#include "longhaul/optim/kernels/grad_norm.h"
#include "tests/support/fake_ranks.h"
#include "tests/support/flat_parameters.h"
#include "tests/support/range_updates.h"

namespace longhaul::optim {
namespace {

AdamWTensors random_state(at::ScalarType weight, at::ScalarType moments) {
  at::manual_seed(4);
  const at::Tensor master = at::randn({5000});
  return {at::randn({5000}), master, at::randn({5000}).mul(0.1).to(moments),
          at::rand({5000}).mul(0.1).to(moments), master.to(weight)};
}

TEST(AdamWComposite, IsTheFusedUpdate) {
  for (const auto convention : {AdamConvention::Torch, AdamConvention::Hf}) {
    for (const auto moments : {at::kFloat, at::kBFloat16}) {
      AdamWStep step;
      step.convention = convention;
      step.lr = 1e-2;
      step.weight_decay = 0.1;
      step.grad_scale = 0.7;
      step.update = 3;
      const AdamWTensors a = random_state(at::kBFloat16, moments);
      const AdamWTensors b = random_state(at::kBFloat16, moments);
      adamw_composite(a, step);
      adamw_update({5000, b.gradient.data_ptr(), format::DType::F32, b.master.data_ptr(),
                    b.exp_avg.data_ptr(), b.exp_avg_sq.data_ptr(),
                    moments == at::kFloat ? format::DType::F32 : format::DType::BF16,
                    b.weight.data_ptr(), format::DType::BF16},
                   step);
      const auto close = [](const at::Tensor& x, const at::Tensor& y, double tolerance) {
        return (x.to(at::kDouble) - y.to(at::kDouble)).abs().max().item<double>() <=
               tolerance;
      };
      EXPECT_TRUE(close(a.master, b.master, 1e-6));
      EXPECT_TRUE(close(a.exp_avg, b.exp_avg, moments == at::kFloat ? 1e-6 : 4e-3));
      EXPECT_TRUE(close(a.exp_avg_sq, b.exp_avg_sq, moments == at::kFloat ? 1e-6 : 4e-3));
      EXPECT_TRUE(close(a.weight, b.weight, 2e-2));
    }
  }
}

TEST(LambComposite, IsTheFusedUpdate) {
  for (const auto moments : {at::kFloat, at::kBFloat16}) {
    AdamWStep step;
    step.lr = 1e-2;
    step.weight_decay = 0.1;
    step.grad_scale = 0.7;
    step.update = 3;
    const AdamWTensors a = random_state(at::kBFloat16, moments);
    const AdamWTensors b = random_state(at::kBFloat16, moments);
    const AdamWRange range{
        5000,
        b.gradient.data_ptr(),
        format::DType::F32,
        b.master.data_ptr(),
        b.exp_avg.data_ptr(),
        b.exp_avg_sq.data_ptr(),
        moments == at::kFloat ? format::DType::F32 : format::DType::BF16,
        b.weight.data_ptr(),
        format::DType::BF16};
    const at::Tensor sums = at::zeros({2}, at::kDouble);
    lamb_moments_composite(a, step, sums);
    const LambSums fused = lamb_moments(range, step);
    EXPECT_NEAR(sums[0].item<double>(), fused.weight, 1e-9 * fused.weight);
    EXPECT_NEAR(sums[1].item<double>(), fused.update,
                (moments == at::kFloat ? 1e-6 : 1e-3) * fused.update);
    // A `rate` of 0.5 has the same effect as half the lr.
    lamb_apply_composite(a, step, at::full({1}, 0.5, at::kDouble));
    step.lr *= 0.5;
    lamb_apply(range, step);
    EXPECT_LE((a.master - b.master).abs().max().item<float>(),
              moments == at::kFloat ? 1e-6F : 1e-3F);
    EXPECT_TRUE(a.weight.equal(a.master.to(at::kBFloat16)));
  }
}

/// Two trained parameters of two classes and a frozen one, on rank `shard` of `shards`.
struct Model {
  explicit Model(int shard = 0, int shards = 1)
      : flat({{parameters[0], {1.0, 0.1, false}, 0},
              {parameters[1], {0.5, 0.0, false}, 0},
              {parameters[2], {1.0, 0.0, true}, 0}},
             {format::DType::BF16}, at::kCPU, {shard, shards}) {}
  std::vector<tensor::ParameterPtr> parameters = {
      tensor::make_parameter("b", {40, 50}, {}),
      tensor::make_parameter("a", {70, 10}, {}),
      tensor::make_parameter("frozen", {30}, {})};
  std::vector<std::string> names = {"a", "b", "frozen"};
  tensor::FlatBuffers flat;
};

TEST(Optimizer, NormOfShardsIsTheNormOfTheWhole) {
  double expected = 0.0;
  double sharded = 0.0;
  for (int rank = 0; rank < 2; ++rank) {
    Model model(rank, 2);
    at::manual_seed(2);
    expected = 0.0;
    for (const tensor::ParameterPtr& p : model.parameters) {
      if (p->frozen()) continue;
      at::Tensor grad = p->grad();
      grad.copy_(at::randn(grad.sizes()));
      expected += grad.to(at::kDouble).square().sum().item<double>();
    }
    const Optimizer half(model.flat, {});
    sharded += half.gradient_squares(model.names).sum().item<double>();
  }
  EXPECT_NEAR(std::sqrt(sharded), std::sqrt(expected), 1e-9);
}

TEST(Optimizer, CountsCopiesOnce) {
  const tensor::ParameterPtr p = tensor::make_parameter("w", {2000}, {});
  for (const bool counted : {true, false}) {
    tensor::FlatBuffers flat({{p, {}, 0, 0, counted}}, {format::DType::F32}, at::kCPU);
    at::Tensor(p->grad()).fill_(2.0);
    const at::Tensor sums = Optimizer(flat, {}).gradient_squares({"w"});
    EXPECT_NEAR(std::sqrt(sums.item<double>()), counted ? 2.0 * std::sqrt(2000.0) : 0.0,
                1e-9);
  }
}

TEST(Optimizer, SquaresOfGradientsAreInTheOrderOfTheNames) {
  Model model;
  at::manual_seed(3);
  std::map<std::string, double> expected = {{"elsewhere", 0.0}, {"frozen", 0.0}};
  for (const tensor::ParameterPtr& p : model.parameters) {
    if (p->frozen()) continue;
    at::Tensor grad = p->grad();
    grad.copy_(at::randn(grad.sizes()));
    expected[p->name()] = sum_of_squares(
        grad.data_ptr(), grad.numel(),
        grad.scalar_type() == at::kFloat ? format::DType::F32 : format::DType::BF16);
  }
  const Optimizer optimizer(model.flat, {});
  const std::vector<std::string> names = {"elsewhere", "b", "frozen", "a"};
  const at::Tensor sums = optimizer.gradient_squares(names);
  ASSERT_EQ(sums.scalar_type(), at::kDouble);
  ASSERT_EQ(sums.sizes(), at::IntArrayRef({4}));
  std::vector<double> values;
  for (size_t i = 0; i < names.size(); ++i) {
    values.push_back(sums[static_cast<int64_t>(i)].item<double>());
    EXPECT_EQ(values.back(), expected.at(names[i])) << names[i];
  }
  EXPECT_GT(expected.at("a"), 1.0);
  const double expected_norm = norm_of_sums(values);
  EXPECT_EQ(norm_over(*comm::self_world(), values), expected_norm);
  EXPECT_ANY_THROW(optimizer.gradient_squares({"a", "frozen"}));
}

TEST(SquaresComposite, OfManyPartsIsTheFusedSum) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({kSquaresElements + 1001}).to(type);
    const at::Tensor sum = at::full({1}, 0.5, at::kDouble);
    add_squares_composite(x, sum);
    const double fused =
        sum_of_squares(x.data_ptr(), x.numel(),
                       type == at::kFloat ? format::DType::F32 : format::DType::BF16);
    EXPECT_NEAR(sum.item<double>() - 0.5, fused, 1e-12 * fused);
  }
}

/// Expects that the first update moves an element by lr * lr_scale, whatever the gradient
/// is, and by the decay.
void check_first_update(Model& model, const layout::FlatRange& owned) {
  for (const tensor::FlatMember& member : model.flat.buckets()[1].members) {
    const bool decayed = member.parameter->name() == "b";
    const double expected = decayed ? 1.0 - 0.25 * 0.1 - 0.25 : 1.0 - 0.125;
    const layout::FlatRange own = tensor::Bucket::overlap(member, owned);
    const at::Tensor w = member.parameter->weight().flatten();
    for (int64_t i = 0; i < member.num_elements; ++i) {
      const bool mine = i >= own.begin && i < own.end;
      ASSERT_NEAR(w[i].item<float>(), mine ? expected : 1.0, 4e-3) << i;
    }
  }
}

TEST(Optimizer, MovesOwnedWeightsByTheirClassAndLeavesFrozenOnes) {
  for (const auto& [shard, shards] : {std::pair(0, 1), {0, 2}, {1, 2}, {2, 4}}) {
    Model model(shard, shards);
    for (const tensor::ParameterPtr& p : model.parameters) {
      at::Tensor w = p->weight();
      w.fill_(1.0);
      if (!p->frozen()) at::Tensor(p->grad()).fill_(1.0);
    }
    Optimizer optimizer(model.flat, {});
    optimizer.step(0.25, 1.0, *comm::self_world());
    ASSERT_EQ(model.flat.buckets().size(), 2U);
    check_first_update(model, model.flat.buckets()[1].owned);
    EXPECT_EQ(model.parameters[2]->weight()[0].item<float>(), 1.0F);
    EXPECT_EQ(optimizer.updates(), 1);
  }
}

OptimizerSection lamb() {
  OptimizerSection settings;
  settings.kind = OptimizerKind::Lamb;
  settings.betas = {0.9, 0.999};
  settings.eps = 1e-6;
  return settings;
}

/// Returns numbers that are the same on every rank and in every call.
at::Tensor made_up(const tensor::Parameter& p, double salt) {
  const at::Tensor i = at::arange(p.slice().num_elements(), at::kDouble);
  return at::sin(i * (0.37 + salt) + p.name().size()).reshape(p.slice().extent);
}

/// The weights after two updates, and the trust ratios of the second update, by the names
/// of the parameters.
struct Updated {
  std::map<std::string, at::Tensor> weights;
  std::map<std::string, double> ratios;
};
Updated two_lamb_updates(Model& model, comm::Communicator& world,
                         TensorOfParameter tensor_of) {
  Optimizer optimizer(model.flat, lamb(), {std::move(tensor_of), 0});
  for (const tensor::ParameterPtr& p : model.parameters) {
    at::Tensor w = p->weight();
    w.copy_(made_up(*p, 0.0) * 0.1);
  }
  for (size_t i = 0; i < model.flat.buckets().size(); ++i) {
    optimizer.states()[i].master.copy_(model.flat.buckets()[i].owned_weights);
  }
  for (int step = 0; step < 2; ++step) {
    for (const tensor::ParameterPtr& p : model.parameters) {
      if (p->frozen()) continue;
      at::Tensor grad = p->grad();
      grad.copy_(made_up(*p, 0.1 * (step + 1)));
    }
    optimizer.step(0.01, 0.5, world);
  }
  Updated updated;
  for (const tensor::Bucket& bucket : model.flat.buckets()) {
    for (const tensor::FlatMember& member : bucket.members) {
      const tensor::ParameterPtr& p = member.parameter;
      updated.weights[p->name()] = p->weight().to(at::kDouble).flatten();
      if (!bucket.frozen) updated.ratios[p->name()] = optimizer.trust_ratio(member);
    }
  }
  return updated;
}

const TensorOfParameter kFused = {{"a", "ab"}, {"b", "ab"}, {"frozen", "frozen"}};
const TensorOfParameter kApart = {{"a", "a"}, {"b", "b"}, {"frozen", "frozen"}};

/// A Model in which weight decay applies to both trained parameters.
struct DecayedModel : Model {
  explicit DecayedModel(int shard = 0, int shards = 1, bool counted = true) {
    flat = tensor::FlatBuffers({{parameters[0], {1.0, 0.1, false}, 0, 0, counted},
                                {parameters[1], {0.5, 0.1, false}, 0, 0, counted},
                                {parameters[2], {1.0, 0.0, true}, 0}},
                               {format::DType::BF16}, at::kCPU, {shard, shards});
  }
};

TEST(Optimizer, LambHasOneRatioForParametersOfOneTensor) {
  DecayedModel fused;
  DecayedModel apart;
  const Updated one = two_lamb_updates(fused, *comm::self_world(), kFused);
  const Updated two = two_lamb_updates(apart, *comm::self_world(), kApart);
  EXPECT_EQ(one.ratios.at("a"), one.ratios.at("b"));
  EXPECT_LT(one.ratios.at("a"), 0.3);
  EXPECT_NE(two.ratios.at("a"), two.ratios.at("b"));
  EXPECT_NE(one.ratios.at("a"), two.ratios.at("a"));
}

TEST(Optimizer, LambHasNoRatioWithoutDecay) {
  Model model;
  const Updated updated = two_lamb_updates(model, *comm::self_world(), kApart);
  EXPECT_EQ(updated.ratios.at("a"), 1.0);
  EXPECT_LT(updated.ratios.at("b"), 0.3);
}

TEST(Optimizer, LambOfShardsIsLambOfTheWholeAndItsRatiosAreOneNumber) {
  DecayedModel whole;
  const Updated expected = two_lamb_updates(whole, *comm::self_world(), kFused);
  std::vector<double> ratios(2);
  comm::run_fake_ranks(2, [&](const std::shared_ptr<comm::Communicator>& world) {
    const int rank = world->rank();
    DecayedModel shard(rank, 2);
    const Updated updated = two_lamb_updates(shard, *world, kFused);
    ratios[static_cast<size_t>(rank)] = updated.ratios.at("a");
    const tensor::Bucket& bucket = shard.flat.buckets()[1];
    for (const tensor::FlatMember& member : bucket.members) {
      const layout::FlatRange own = tensor::Bucket::overlap(member, bucket.owned);
      const std::string& name = member.parameter->name();
      const auto mine = [&](const Updated& u) {
        return u.weights.at(name).narrow(0, own.begin, own.size());
      };
      if (own.size() > 0) {
        EXPECT_TRUE(mine(updated).equal(mine(expected))) << name << " on rank " << rank;
      }
    }
  });
  EXPECT_EQ(ratios[0], ratios[1]);
  EXPECT_NEAR(ratios[0], expected.ratios.at("a"), 1e-12);
}

/// Returns the weights of "b" and "a" after three updates with bf16 masters, by element
/// index, on rank `shard` of `shards` and for part `tp` of `parts` parts cut along
/// `dim`.
std::map<std::string, std::map<int64_t, float>> rounded_weights(OptimizerKind kind,
                                                                int shard, int shards,
                                                                int tp, int parts,
                                                                int64_t dim) {
  std::vector<tensor::FlatParameter> placed;
  for (const auto& [name, shape] :
       {std::pair<std::string, std::vector<int64_t>>{"b", {40, 50}}, {"a", {70, 30}}}) {
    const tensor::ParameterPtr p = tensor::make_parameter(name, shape, {});
    format::TensorSlice slice = p->slice();
    slice.extent[static_cast<size_t>(dim)] /= parts;
    slice.offset[static_cast<size_t>(dim)] = tp * slice.extent[static_cast<size_t>(dim)];
    p->set_slice(slice);
    placed.push_back({p, {1.0, 0.0, false}, 0});
  }
  tensor::FlatBuffers flat(
      placed, {format::DType::BF16, format::DType::BF16, format::DType::BF16}, at::kCPU,
      {shard, shards});
  OptimizerSection settings = lamb();
  settings.kind = kind;
  Optimizer optimizer(flat, settings, {{{"a", "a"}, {"b", "b"}}, 17});
  // Fills a tensor with values that follow from the elements' indices in the whole
  // tensor.
  const auto fill = [](const tensor::Parameter& p, at::Tensor into, double salt) {
    const ElementPlace place = element_place(p.slice(), 0);
    const at::Tensor j = at::arange(p.slice().num_elements(), at::kLong);
    const at::Tensor column = j.remainder(place.row);
    const at::Tensor number =
        (j - column).divide(place.row, "trunc") * place.stride + place.first + column;
    into.copy_(at::sin(number.to(at::kDouble) * (0.37 + salt)).reshape(into.sizes()));
  };
  for (const tensor::FlatParameter& p : placed)
    fill(*p.parameter, p.parameter->weight(), 0.0);
  for (int step = 1; step <= 3; ++step) {
    for (const tensor::FlatParameter& p : placed) {
      fill(*p.parameter, p.parameter->grad(), 0.1 * step);
    }
    optimizer.step(0.01, 0.5, *comm::self_world());
  }
  std::map<std::string, std::map<int64_t, float>> found;
  for (const tensor::Bucket& bucket : flat.buckets()) {
    for (const tensor::FlatPiece& piece : tensor::pieces_in(bucket, bucket.owned)) {
      const tensor::Parameter& p = *piece.member->parameter;
      const at::Tensor w = p.weight().to(at::kFloat).flatten();
      const ElementPlace place = element_place(p.slice(), 0);
      for (int64_t j = piece.in_member.begin; j < piece.in_member.end; ++j) {
        const int64_t number = j / place.row * place.stride + place.first + j % place.row;
        found[p.name()][number] = w[j].item<float>();
      }
    }
  }
  return found;
}

TEST(Optimizer, RoundsAnElementTheSameWhereverItLies) {
  for (const OptimizerKind kind : {OptimizerKind::AdamW, OptimizerKind::Lamb}) {
    const auto whole = rounded_weights(kind, 0, 1, 0, 1, 0);
    const auto compare = [&](int shards, int parts, int64_t dim) {
      size_t seen = 0;
      for (int shard = 0; shard < shards; ++shard) {
        for (int tp = 0; tp < parts; ++tp) {
          for (const auto& [name, elements] :
               rounded_weights(kind, shard, shards, tp, parts, dim)) {
            for (const auto& [number, value] : elements) {
              ASSERT_EQ(value, whole.at(name).at(number)) << name << " " << number;
              ++seen;
            }
          }
        }
      }
      EXPECT_EQ(seen, whole.at("a").size() + whole.at("b").size());
    };
    compare(2, 1, 0);
    compare(4, 1, 0);
    compare(1, 2, 0);
    compare(1, 2, 1);
    compare(2, 2, 1);
  }
}

TEST(Optimizer, KeepsSixBytesAParameterWithBf16States) {
  tensor::FlatBuffers flat(flat_parameters({tensor::make_parameter("w", {2000}, {})}, {}),
                           {format::DType::BF16, format::DType::BF16, format::DType::BF16,
                            format::DType::BF16},
                           at::kCPU);
  const Optimizer optimizer(flat, {});
  const tensor::Bucket& bucket = flat.buckets()[0];
  EXPECT_EQ(optimizer.states()[0].master.data_ptr(), bucket.weights.data_ptr());
  const int64_t without_gradients =
      optimizer.bytes() + static_cast<int64_t>(bucket.weights.nbytes());
  EXPECT_EQ(without_gradients, 6 * bucket.num_elements);
  EXPECT_EQ(optimizer.bytes() + flat.bytes(), 8 * bucket.num_elements);
}

TEST(RoundingComposite, HasTheBitsOfTheFusedForm) {
  const int64_t count = 70'000;
  const at::Tensor x = at::randn({count});
  x[7].fill_(NAN);
  const Rounding rounding{rounding_key(4, "w"),
                          {11, 333, 1000, (int64_t{2} << 32) - 40'000}};
  const at::Tensor composite = rounded_composite(x, rounding, kRoundExpAvgSq, 6);
  for (int64_t i = 0; i < count; i += 1 + i % 3) {
    const int64_t j = rounding.place.begin + i;
    const int64_t number = j / 333 * 1000 + rounding.place.first + j % 333;
    const auto bits = std::bit_cast<uint32_t>(x[i].item<float>()) +
                      rounding_bits(rounding, kRoundExpAvgSq, 6, number);
    const auto expected = format::bf16_to_float(static_cast<uint16_t>(bits >> 16));
    if (i == 7) continue;
    ASSERT_EQ(composite[i].item<float>(), expected) << i;
  }
  EXPECT_TRUE(std::isnan(composite[7].item<float>()));
}

TEST(Optimizer, MasterSharesMemoryWithWeightsOfTheSameDtype) {
  tensor::FlatBuffers flat(flat_parameters({tensor::make_parameter("w", {2000}, {})}, {}),
                           {format::DType::F32}, at::kCPU);
  const Optimizer optimizer(flat, {});
  EXPECT_EQ(optimizer.states()[0].master.data_ptr(),
            flat.buckets()[0].weights.data_ptr());
  EXPECT_EQ(optimizer.bytes(), 2 * 4 * flat.buckets()[0].num_elements);
}

}  // namespace
}  // namespace longhaul::optim
