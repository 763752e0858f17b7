// Compares a mixture of experts on several ranks with the plain formula on one.
#include "longhaul/parallel/expert/dispatch.h"

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/parallel/tensor/region.h"
#include "tests/support/experts_layer.h"
#include "tests/support/fake_ranks.h"

namespace longhaul::parallel {
namespace {

using namespace longhaul::testing::experts;

/// Returns the result of the layer by its formula, token by token, in fp64.
at::Tensor by_formula(const Layer& layer, const at::Tensor& x) {
  const auto weight = [&](const std::string& name) {
    for (const tensor::ParameterPtr& p : layer.all) {
      if (p->name() == name + ".weight") return p->weight().to(at::kDouble);
    }
    throw std::out_of_range(name);
  };
  const auto gated = [&](const at::Tensor& in, const std::string& name) {
    return at::linear(at::silu(at::linear(in, weight(name + ".gate_proj"))) *
                          at::linear(in, weight(name + ".up_proj")),
                      weight(name + ".down_proj"));
  };
  std::vector<at::Tensor> results;
  for (int64_t t = 0; t < x.size(0); ++t) {
    const at::Tensor in = x[t].to(at::kDouble);
    const at::Tensor p = at::softmax(at::linear(in, weight("router")), -1);
    const auto [best, chosen] = at::topk(p, kChosen);
    at::Tensor y = gated(in, "shared");
    for (int64_t i = 0; i < kChosen; ++i) {
      const std::string name = "experts." + std::to_string(chosen[i].item<int64_t>());
      y = y + gated(in, name) * best[i] / best.sum();
    }
    results.push_back(y);
  }
  return at::stack(results);
}

TEST(Experts, AreWhatTheFormulaSays) {
  Layer layer(/*shared=*/true, 1, 0);
  const at::Tensor x = random(1);
  const at::Tensor y = layer.run(x, random(2));
  ops::expect_close(y, by_formula(layer, x).to(at::kFloat), 1e-5, "y");
}

/// Compares the gradients with differences of the sum <y, dy> and of the loss's terms.
TEST(Experts, HaveTheGradientsOfTheirResultAndOfTheTermsOfTheLoss) {
  Layer layer(/*shared=*/true, 1, 0);
  const at::Tensor x = random(1), dy = random(2);
  layer.run(x, dy);
  const auto total = [&](Layer& at_place) {
    at_place.losses = nn::Losses(at_place.losses.scales);
    at::NoGradGuard no_grad;
    const at::Tensor y = at_place.experts.forward(x, at_place.context);
    const std::vector<double> sums = at_place.losses.sums();
    return (y.to(at::kDouble) * dy).sum().item<double>() +
           sums[0] * at_place.losses.scales[0] + sums[1] * at_place.losses.scales[1];
  };
  // A RouterPass keeps the choice of experts fixed, as the gradient assumes.
  layer.context.router.pass = std::make_shared<nn::RouterPass>();
  total(layer);
  for (const tensor::ParameterPtr& p : layer.all) {
    const at::Tensor grad = p->grad().to(at::kDouble);
    const at::Tensor direction = at::randn_like(p->weight());
    const at::Tensor before = p->weight().clone();
    constexpr double kStep = 1e-2;
    at::Tensor(p->weight()).add_(direction, kStep);
    const double up = total(layer);
    at::Tensor(p->weight()).copy_(before).add_(direction, -kStep);
    const double down = total(layer);
    at::Tensor(p->weight()).copy_(before);
    const double want = (grad * direction).sum().item<double>();
    EXPECT_NEAR((up - down) / (2.0 * kStep), want,
                2e-3 * (1.0 + grad.norm().item<double>()))
        << p->name();
  }
}

/// A layer whose loads are counted, with the tensors that each BalanceKind needs.
struct CountedLayer : Layer {
  explicit CountedLayer(BalanceKind balance) : Layer(/*shared=*/false, 1, 0) {
    loads.counts = at::zeros({1, kExperts}, at::kLong);
    loads.entropy = at::zeros({1});
    context.router.loads = &loads;
    context.router.balance = balance;
    context.router.shares = at::linspace(0.1, 0.9, kExperts).view({1, kExperts});
    context.router.pass = std::make_shared<nn::RouterPass>();
  }
  nn::RouterLoads loads;
};

/// Compares sequences with padding at their ends with the same sequences without.
TEST(Experts, CountPaddingInNoTermOfTheLossAndInNoLoad) {
  constexpr int64_t kReal = 5;
  const auto real_part = [](const at::Tensor& of, int64_t from, int64_t length) {
    return of.view({kSequences, kLength, -1}).narrow(1, from, length);
  };
  const auto cut = [&](const at::Tensor& of) {
    return real_part(of, 0, kReal).reshape({kSequences * kReal, kHidden});
  };
  const at::Tensor x = random(1), dy = random(2);
  real_part(dy, kReal, kLength - kReal).zero_();
  for (const BalanceKind balance :
       {BalanceKind::Sequence, BalanceKind::Global, BalanceKind::Pooled}) {
    SCOPED_TRACE(static_cast<int>(balance));
    CountedLayer padded(balance), shorter(balance);
    padded.context.batch.real = at::ones({kTokens});
    real_part(padded.context.batch.real, kReal, kLength - kReal).zero_();
    shorter.context.batch.seq = kReal;
    const at::Tensor y = padded.run(x, dy);
    ops::expect_close(cut(y), shorter.run(cut(x), cut(dy)), 1e-5, "y");
    ops::expect_close(cut(padded.dx), shorter.dx, 1e-5, "dx");
    for (size_t i = 0; i < padded.all.size(); ++i) {
      ops::expect_close(padded.all[i]->grad(), shorter.all[i]->grad(), 1e-5,
                        padded.all[i]->name());
    }
    for (size_t i = 0; i < 2; ++i) {
      const double want = shorter.losses.sums()[i];
      EXPECT_NEAR(padded.losses.sums()[i], want, 1e-5 * want);
    }
    EXPECT_TRUE(at::equal(padded.loads.counts, shorter.loads.counts));
    ops::expect_close(padded.loads.entropy, shorter.loads.entropy, 1e-5, "entropy");
  }
}

TEST(Experts, BalanceEachSequenceByItsOwnTokens) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = random(1).view({kSequences, kLength, kHidden});
  CountedLayer padded(BalanceKind::Sequence);
  padded.context.batch.real = at::ones({kSequences, kLength});
  std::vector<double> want(2, 0.0);
  int64_t row = 0;
  for (const int64_t length : {5, 8, 0, 3}) {
    padded.context.batch.real[row].narrow(0, length, kLength - length).zero_();
    CountedLayer alone(BalanceKind::Sequence);
    alone.context.batch.rows = 1;
    alone.context.batch.seq = length;
    if (length > 0) alone.experts.forward(x[row].narrow(0, 0, length), alone.context);
    for (size_t i = 0; i < 2; ++i) want[i] += alone.losses.sums()[i];
    ++row;
  }
  padded.context.batch.real = padded.context.batch.real.view(-1);
  padded.experts.forward(x.view({kTokens, kHidden}), padded.context);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(padded.losses.sums()[i], want[i], 1e-5 * want[i]);
  }
}

/// The test counts the calls of sum_sequences, which is called only if the terms of the
/// loss are computed.
TEST(Experts, ComputeTermsThatAreReadOrHaveAGradient) {
  Layer layer(/*shared=*/false, 1, 0);
  int sums = 0;
  layer.context.router.sum_sequences = [&](at::Tensor& /*counts*/) { ++sums; };
  struct Found {
    int sums;
    bool counted;
    bool operator==(const Found&) const = default;
  };
  const auto run = [&](double scale, bool again, bool read) {
    sums = 0;
    layer.losses = nn::Losses({scale, scale});
    layer.losses.again = again;
    layer.context.router.terms_read = read;
    layer.run(random(1), random(2));
    const std::vector<double> terms = layer.losses.sums();
    EXPECT_EQ(terms[0] > 0.0, terms[1] > 0.0);
    return Found{sums, terms[0] > 0.0};
  };
  for (const double scale : {0.0, 0.1}) {
    EXPECT_EQ(run(scale, false, true), (Found{1, true}));
    EXPECT_EQ(run(scale, true, true), (Found{scale > 0.0 ? 1 : 0, false}));
    EXPECT_EQ(run(scale, false, false), (Found{0, false}));
  }
}

/// Compares the results of `ranks` ranks of ep, each with its part of the tokens, with
/// the result of one rank.
TEST(ExpertParallel, GivesTheResultsAndGradientsOfOneRank) {
  const at::Tensor x = random(1), dy = random(2);
  for (const bool shared : {false, true}) {
    Layer one(shared, 1, 0);
    const at::Tensor want = one.run(x, dy);
    for (const int ranks : {2, 4, 8}) {
      SCOPED_TRACE(fmt::format("{} ranks, shared {}", ranks, shared));
      if (kSequences % ranks != 0) continue;
      std::mutex mutex;
      std::vector<at::Tensor> sums(one.all.size());
      std::vector<double> losses(2);
      comm::run_fake_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& world) {
        Layer layer(shared, ranks, world->rank());
        const TokenDispatch dispatch(*world, nullptr);
        layer.context.router.dispatch = &dispatch;
        const auto part = [&](const at::Tensor& of) {
          return of.narrow(0, world->rank() * kTokens / ranks, kTokens / ranks);
        };
        const at::Tensor got = layer.run(part(x), part(dy));
        const std::lock_guard lock(mutex);
        ops::expect_close(got, part(want), 1e-5, "y");
        ops::expect_close(layer.dx, part(one.dx), 1e-5, "dx");
        for (size_t i = 0; i < sums.size(); ++i) {
          const at::Tensor& grad = layer.all[i]->grad();
          if (grad.numel() == 0) continue;
          sums[i] = sums[i].defined() ? sums[i] + grad : grad.clone();
        }
        for (size_t i = 0; i < 2; ++i) losses[i] += layer.losses.sums()[i];
      });
      for (size_t i = 0; i < sums.size(); ++i) {
        ops::expect_close(sums[i], one.all[i]->grad(), 1e-5, one.all[i]->name());
      }
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_NEAR(losses[i], one.losses.sums()[i], 1e-4 * losses[i]);
      }
    }
  }
}

TEST(ExpertParallel, SplitsExpertsOverTensorParallelRanks) {
  const at::Tensor x = random(1), dy = random(2);
  Layer one(/*shared=*/true, 1, 0);
  const at::Tensor want = one.run(x, dy);
  for (const bool sequence : {false, true}) {
    SCOPED_TRACE(fmt::format("sequence {}", sequence));
    std::mutex mutex;
    at::Tensor of_router;
    std::vector<double> losses(2);
    comm::run_fake_ranks(2, [&](const std::shared_ptr<comm::Communicator>& world) {
      Layer layer(/*shared=*/true, 1, 0, 2, world->rank(), sequence);
      const TensorRegion region(*world, sequence);
      layer.context.region = &region;
      const at::Tensor got = layer.run(region.outside(x), region.outside(dy));
      const std::lock_guard lock(mutex);
      ops::expect_close(got, region.outside(want), 1e-5, "y");
      ops::expect_close(layer.dx, region.outside(one.dx), 1e-5, "dx");
      const at::Tensor grad = layer.all[0]->grad();
      of_router = of_router.defined() ? of_router + grad : grad.clone();
      for (size_t i = 0; i < 2; ++i) losses[i] += layer.losses.sums()[i];
      for (size_t i = 1; i < layer.all.size(); ++i) {
        const format::TensorSlice& slice = layer.all[i]->slice();
        const int64_t dim = slice.extent[0] == slice.global_shape[0] ? 1 : 0;
        const auto d = static_cast<size_t>(dim);
        ops::expect_close(
            layer.all[i]->grad(),
            one.all[i]->grad().narrow(dim, slice.offset[d], slice.extent[d]), 1e-5,
            layer.all[i]->name());
      }
    });
    ops::expect_close(of_router, one.all[0]->grad(), 1e-5, "router");
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(losses[i], one.losses.sums()[i], 1e-4 * losses[i]);
    }
  }
}

/// Three layers of experts in bf16 on one rank. Each adds its result to its input.
struct Layers {
  Layers(int ep, int ep_index, int tp = 1, int tp_index = 0) {
    for (int i = 0; i < 3; ++i) {
      all.push_back(std::make_unique<Layer>(/*shared=*/false, ep, ep_index, tp, tp_index,
                                            /*sequence=*/false, at::kBFloat16));
      all.back()->context.router.pass = std::make_shared<nn::RouterPass>();
    }
  }

  at::Tensor run(const at::Tensor& x, const at::Tensor& dy) {
    const at::Tensor in = ops::leaf(x.to(at::kBFloat16));
    at::Tensor y = in;
    for (const auto& layer : all) {
      y = y + layer->experts.forward(y, layer->context) * 0.25;
    }
    ops::backward(y, dy.to(at::kBFloat16));
    dx = in.grad();
    return y.detach();
  }
  at::Tensor& chosen(size_t layer) { return all[layer]->context.router.pass->chosen[0]; }

  std::vector<std::unique_ptr<Layer>> all;
  at::Tensor dx;
};

/// In bf16 two ranks may choose other experts than one rank if the logits of two
/// experts are nearly equal, because the sums before a router are rounded otherwise. With
/// the choices of one rank all results are within rounding. The test's record says how
/// many tokens would differ.
TEST(ExpertParallel, WithTheChoicesOfOneRankIsWithinTheRoundingOfBf16) {
  const at::Tensor x = random(1), dy = random(2);
  const double tolerance = 3 * ops::tolerance_of(at::kBFloat16);  // three layers
  Layers one(1, 0);
  const at::Tensor want = one.run(x, dy);
  for (const bool tensor : {false, true}) {
    const std::string name = tensor ? "tp 2" : "ep 2";
    SCOPED_TRACE(name);
    std::mutex mutex;
    std::map<std::string, at::Tensor> sums;
    int64_t others = 0;
    comm::run_fake_ranks(2, [&](const std::shared_ptr<comm::Communicator>& world) {
      const int rank = world->rank();
      const TokenDispatch dispatch(*world, nullptr);
      const TensorRegion region(*world, /*sequence=*/false);
      const auto make = [&] {
        Layers made = tensor ? Layers(1, 0, 2, rank) : Layers(2, rank);
        for (const auto& layer : made.all) {
          if (tensor) {
            layer->context.region = &region;
          } else {
            layer->context.router.dispatch = &dispatch;
          }
        }
        return made;
      };
      const auto part = [&](const at::Tensor& of) {
        return tensor ? of : of.narrow(0, rank * kTokens / 2, kTokens / 2);
      };
      Layers free = make(), replayed = make();
      free.run(part(x), part(dy));
      for (size_t i = 0; i < one.all.size(); ++i) {
        replayed.chosen(i) = part(one.chosen(i));
      }
      const at::Tensor got = replayed.run(part(x), part(dy));
      const std::lock_guard lock(mutex);
      ops::expect_close(got, part(want), tolerance, "y");
      ops::expect_close(replayed.dx, part(one.dx), tolerance, "dx");
      for (size_t i = 0; i < one.all.size(); ++i) {
        EXPECT_TRUE(at::equal(replayed.chosen(i), part(one.chosen(i))));
        // With tp both ranks choose experts for the same tokens, which are counted once.
        if (!tensor || rank == 0) {
          others += free.chosen(i).ne(part(one.chosen(i))).any(1).sum().item<int64_t>();
        }
        for (const tensor::ParameterPtr& p : replayed.all[i]->all) {
          if (tensor || p->grad().numel() == 0) continue;
          at::Tensor& sum = sums[std::to_string(i) + "." + p->name()];
          sum = sum.defined() ? sum + p->grad() : p->grad().clone();
        }
      }
    });
    RecordProperty("tokens_with_other_experts_" + name.substr(0, 2),
                   std::to_string(others));
    EXPECT_LE(others, std::ssize(one.all) * kTokens / 4);
    for (size_t i = 0; i < one.all.size(); ++i) {
      for (const tensor::ParameterPtr& p : one.all[i]->all) {
        const std::string key = std::to_string(i) + "." + p->name();
        if (!tensor) ops::expect_close(sums[key], p->grad(), tolerance, key);
      }
    }
  }
}

/// Sends every token to expert 0 first, so that ranks without its weights have few rows
/// and some experts none.
TEST(ExpertParallel, WorksWhereOneExpertGetsAllTokensAndOthersNone) {
  const at::Tensor x = random(1).abs(), dy = random(2);
  const auto lean = [](const Layer& layer) {
    at::Tensor router = layer.all[0]->weight();
    router.zero_();
    for (int64_t e = 0; e < kChosen; ++e)
      router[e].fill_(1.0 - 0.1 * static_cast<double>(e));
  };
  Layer one(/*shared=*/false, 1, 0);
  lean(one);
  const at::Tensor want = one.run(x, dy);
  comm::run_fake_ranks(4, [&](const std::shared_ptr<comm::Communicator>& world) {
    Layer layer(/*shared=*/false, 4, world->rank());
    lean(layer);
    const TokenDispatch dispatch(*world, nullptr);
    layer.context.router.dispatch = &dispatch;
    const auto part = [&](const at::Tensor& of) {
      return of.narrow(0, world->rank() * kTokens / 4, kTokens / 4);
    };
    ops::expect_close(layer.run(part(x), part(dy)), part(want), 1e-5, "y");
    ops::expect_close(layer.dx, part(one.dx), 1e-5, "dx");
  });
}

/// A token that is not a number makes its rank's loss no number, so that the trainer sees
/// a bad step.
TEST(ExpertParallel, HandsOnWhatIsNotANumberAndKeepsTheOtherTokens) {
  at::Tensor x = random(1);
  Layer one(/*shared=*/false, 1, 0);
  const at::Tensor dy = random(2);
  const at::Tensor want = one.run(x, dy);
  x[3].fill_(std::numeric_limits<float>::quiet_NaN());
  comm::run_fake_ranks(2, [&](const std::shared_ptr<comm::Communicator>& world) {
    Layer layer(/*shared=*/false, 2, world->rank());
    const TokenDispatch dispatch(*world, nullptr);
    layer.context.router.dispatch = &dispatch;
    const auto part = [&](const at::Tensor& of) {
      return of.narrow(0, world->rank() * kTokens / 2, kTokens / 2);
    };
    const at::Tensor got = layer.run(part(x), part(dy));
    const at::Tensor broken = got.isnan().all(1);
    EXPECT_EQ(broken.sum().item<int64_t>(), world->rank() == 0 ? 1 : 0);
    const at::Tensor whole = broken.logical_not().nonzero().squeeze(1);
    ops::expect_close(got.index_select(0, whole), part(want).index_select(0, whole), 1e-5,
                      "the other tokens");
    const double z = layer.losses.sums()[1];
    EXPECT_EQ(std::isnan(z), world->rank() == 0);
  });
}

/// Runs the layer once more with the choice of the first run, and with other weights of
/// the router, which would choose other experts.
TEST(Experts, KeepTheirChoiceWhenTheyRunAgain) {
  Layer layer(/*shared=*/false, 1, 0);
  layer.context.router.pass = std::make_shared<nn::RouterPass>();
  const at::NoGradGuard no_grad;
  const at::Tensor x = random(1);
  const at::Tensor first = layer.experts.forward(x, layer.context);
  const at::Tensor chosen = layer.context.router.pass->chosen.at(0).clone();
  EXPECT_TRUE(at::equal(layer.experts.forward(x, layer.context), first));
  at::Tensor(layer.all[0]->weight()).neg_();
  layer.experts.forward(x, layer.context);
  EXPECT_TRUE(at::equal(layer.context.router.pass->chosen.at(0), chosen));
}

}  // namespace
}  // namespace longhaul::parallel
