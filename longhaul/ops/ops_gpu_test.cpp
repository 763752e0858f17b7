// Tests that each operation gives on a GPU what it gives on the CPU, fused and composite.
// The tests have the label gpu.
#include <functional>

#include "longhaul/ops/attention/attention.h"
#include "longhaul/ops/dropout.h"
#include "longhaul/ops/embedding.h"
#include "longhaul/ops/experts/grouped_linear.h"
#include "longhaul/ops/gated_product.h"
#include "longhaul/ops/gelu.h"
#include "longhaul/ops/linear/linear.h"
#include "longhaul/ops/loss_head.h"
#include "longhaul/ops/rms_norm.h"
#include "longhaul/ops/rope.h"
#include "longhaul/ops/wide_norm.h"
#include "tests/support/parameters.h"

namespace longhaul::ops {
namespace {

/// The output, the gradients of the inputs, and the gradient of the weight.
using Results = std::vector<at::Tensor>;

class GpuOps : public ::testing::TestWithParam<std::tuple<at::ScalarType, bool>> {
 protected:
  void SetUp() override {
    if (!at::globalContext().hasCUDA()) GTEST_SKIP() << "no CUDA device";
    at::manual_seed(1);
  }
  bool fused() const { return std::get<1>(GetParam()); }
  at::Tensor random(at::IntArrayRef shape) const {
    return at::randn(shape).to(std::get<0>(GetParam()));
  }
  /// Calls `run` for both devices and compares the results.
  void compare(const std::function<Results(at::Device)>& run) const {
    const double tolerance = 4 * tolerance_of(std::get<0>(GetParam()));
    const Results cpu = run(at::kCPU);
    const Results gpu = run(at::kCUDA);
    ASSERT_EQ(cpu.size(), gpu.size());
    for (size_t i = 0; i < cpu.size(); ++i) {
      expect_close(gpu[i].cpu(), cpu[i], tolerance, "result " + std::to_string(i));
    }
  }
  /// Calls compare() for every form of an RMS norm.
  void compare_norms(const std::function<Results(at::Device, RmsForm)>& run) const {
    for (const RmsForm form :
         {RmsForm::WeightAfterCast, RmsForm::WeightBeforeCast, RmsForm::OnePlusWeight}) {
      compare([&](at::Device device) { return run(device, form); });
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, GpuOps,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kBFloat16),
                                            ::testing::Bool()));

/// Returns a trained parameter with these values and an fp32 gradient of zeros, on a
/// device.
tensor::ParameterPtr weight_on(const at::Tensor& values, at::Device device) {
  auto parameter = tensor::make_parameter("w", values.sizes().vec(), {});
  parameter->set_frozen(false);
  parameter->bind(
      values.to(device),
      at::zeros(values.sizes(), at::TensorOptions(at::kFloat).device(device)));
  return parameter;
}

TEST_P(GpuOps, LinearIsTheSame) {
  const at::Tensor x = random({70, 48}), w = random({33, 48}), dy = random({70, 33});
  compare([&](at::Device device) -> Results {
    const auto weight = weight_on(w, device);
    const at::Tensor in = leaf(x.to(device));
    const at::Tensor y = linear(in, weight, std::make_shared<WeightGradients>());
    backward(y, dy.to(device));
    return {y, in.grad(), weight->grad()};
  });
}

TEST_P(GpuOps, ExpertsAreTheSame) {
  constexpr int64_t kExperts = 4, kWidth = 136, kFeatures = 264;
  const at::Tensor offsets = at::tensor({0, 0, 33, 33, 133}, at::kInt);  // two are empty
  const at::Tensor x = random({133, kFeatures}), dy = random({133, kWidth});
  const at::Tensor w = random({kExperts, kWidth, kFeatures});
  compare([&](at::Device device) -> Results {
    const at::Tensor all = w.to(device), in = leaf(x.to(device));
    const at::Tensor gradients = at::ones_like(all, at::kFloat);
    ExpertWeights weights;
    for (int64_t e = 0; e < kExperts; ++e) {
      const auto parameter =
          tensor::make_parameter(std::to_string(e), {kWidth, kFeatures}, {});
      parameter->set_frozen(false);
      parameter->bind(all[e], gradients[e]);
      weights.push_back({parameter});
    }
    const at::Tensor y = grouped_linear(in, offsets.to(device), weights,
                                        std::make_shared<WeightGradients>(), fused())[0];
    backward(y, dy.to(device));
    return {y, in.grad(), gradients};
  });
}

TEST_P(GpuOps, EmbeddingIsTheSame) {
  const at::Tensor table = random({10, 16}), dy = random({5, 16});
  const at::Tensor ids = at::tensor({3, 1, 3, 9, 3}, at::kInt);
  compare([&](at::Device device) -> Results {
    const auto weight = weight_on(table, device);
    const at::Tensor y = embedding(ids.to(device), weight);
    backward(y, dy.to(device));
    return {y, weight->grad()};
  });
}

TEST_P(GpuOps, EmbeddingWithAPaddingRowIsTheSame) {
  const at::Tensor table = random({10, 16}), dy = random({5, 16});
  const at::Tensor ids = at::tensor({3, 1, 3, 9, 3}, at::kInt);
  compare([&](at::Device device) -> Results {
    const auto weight = weight_on(table, device);
    weight->set_padding_row(3);
    backward(embedding(ids.to(device), weight), dy.to(device));
    EXPECT_EQ(weight->grad()[3].abs().max().item<float>(), 0.0F);
    return {weight->grad()};
  });
}

TEST_P(GpuOps, RmsNormIsTheSame) {
  const at::Tensor x = random({37, 96}), w = random({96}), dy = random({37, 96});
  compare_norms([&](at::Device device, RmsForm form) -> Results {
    const auto weight = weight_on(w, device);
    const at::Tensor in = leaf(x.to(device));
    const at::Tensor y = rms_norm(in, weight, 1e-5, fused(), form);
    backward(y, dy.to(device));
    return {y, in.grad(), weight->grad()};
  });
}

TEST_P(GpuOps, ResidualNormIsTheSame) {
  const at::Tensor x = random({37, 96}), delta = random({37, 96}), w = random({96});
  const at::Tensor dy = random({37, 96}), beside = random({37, 96});
  compare_norms([&](at::Device device, RmsForm form) -> Results {
    const auto weight = weight_on(w, device);
    const at::Tensor in = leaf(x.to(device)), added = leaf(delta.to(device));
    const auto [sum, y] = residual_rms_norm(in, added, weight, 1e-5, fused(), form);
    backward(y + sum * beside.to(device), dy.to(device));
    return {sum, y, in.grad(), added.grad(), weight->grad()};
  });
}

TEST_P(GpuOps, NormsOfHeadsInOneMatrixAreTheSame) {
  const at::Tensor x = random({37, 8 * 24}), w = random({24}), dy = random({37, 8 * 24});
  compare_norms([&](at::Device device, RmsForm form) -> Results {
    const HeadNorms norms{weight_on(w, device), weight_on(w, device), 1e-5, form};
    const at::Tensor matrix = x.to(device), gradient = dy.to(device);
    const auto part = [](const at::Tensor& of, int64_t from, int64_t heads) {
      return of.narrow(1, from * 24, heads * 24).view({37, heads, 24});
    };
    std::vector<at::Tensor> in, given;
    const auto take = [&](int64_t from, int64_t heads) {
      in.push_back(part(matrix, from, heads).detach().set_requires_grad(true));
      given.push_back(part(gradient, from, heads));
    };
    take(0, 4);
    take(4, 2);
    take(6, 2);
    const Heads y = rms_norm_heads({in[0], in[1], in[2]}, norms, fused());
    const auto dx = torch::autograd::grad({y.q, y.k, y.v}, in, given);
    return {y.q, y.k, y.v, dx[0], dx[1], dx[2], norms.q->grad(), norms.k->grad()};
  });
}

TEST_P(GpuOps, NormsOverAllHeadsAreTheSame) {
  const at::Tensor q = random({37, 4, 24}), k = random({37, 2, 24}), w_q = random({96}),
                   w_k = random({48});
  compare([&](at::Device device) -> Results {
    const WideNorms norms{weight_on(w_q, device), weight_on(w_k, device), 1e-5};
    const at::Tensor mq = leaf(q.to(device)), mk = leaf(k.to(device)),
                     mv = leaf(k.to(device));
    const Heads y = wide_norm_heads({mq, mk, mv}, norms);
    const auto dx = torch::autograd::grad({y.q, y.k, y.v}, {mq, mk, mv},
                                          {q.to(device), k.to(device), k.to(device)});
    return {y.q, y.k, dx[0], dx[1], dx[2], norms.q->grad(), norms.k->grad()};
  });
}

TEST_P(GpuOps, RopeIsTheSame) {
  RopeConfig config;
  config.theta = 10000.0;
  const at::Tensor x = random({20, 3, 32}), dy = random({20, 3, 32});
  compare([&](at::Device device) -> Results {
    const RopeTable table = make_rope_table(config, 32, 64, device);
    const at::Tensor positions = at::arange(7, 27, at::kInt).to(device);
    const at::Tensor in = leaf(x.to(device));
    const at::Tensor y = rope(in, table, positions, fused());
    backward(y, dy.to(device));
    return {y, in.grad()};
  });
}

TEST_P(GpuOps, GatedProductIsTheSame) {
  const at::Tensor gate = random({21, 40}), up = random({21, 40}), dy = random({21, 40});
  for (const Activation activation :
       {Activation::Silu, Activation::GeluTanh, Activation::GeluExact}) {
    compare([&](at::Device device) -> Results {
      const at::Tensor g = leaf(gate.to(device)), u = leaf(up.to(device));
      const at::Tensor y = gated_product(g, u, activation, fused());
      backward(y, dy.to(device));
      return {y, g.grad(), u.grad()};
    });
  }
}

TEST_P(GpuOps, GeluIsTheSame) {
  const at::Tensor x = random({21, 41}), dy = random({21, 41});
  for (const Activation form : {Activation::GeluExact, Activation::GeluTanh}) {
    compare([&](at::Device device) -> Results {
      const at::Tensor in = leaf(x.to(device));
      const at::Tensor y = gelu(in, form, fused());
      backward(y, dy.to(device));
      return {y, in.grad()};
    });
  }
}

TEST_P(GpuOps, AttentionIsTheSame) {
  const at::Tensor q = random({2, 300, 6, 64}), k = random({2, 300, 2, 64});
  const at::Tensor v = random({2, 300, 2, 64}), dy = random({2, 300, 6, 64});
  at::Tensor start = at::zeros({2, 300}, at::kInt);
  start.narrow(1, 130, 170).fill_(130);
  compare([&](at::Device device) -> Results {
    const at::Tensor mq = leaf(q.to(device)), mk = leaf(k.to(device)),
                     mv = leaf(v.to(device));
    AttentionProblem mask{{.scale = 0.03}, start.to(device)};
    const at::Tensor y = attention(mq, {mk, mv}, mask, fused());
    backward(y, dy.to(device));
    return {y, mq.grad(), mk.grad(), mv.grad()};
  });
}

TEST_P(GpuOps, WholeCausalAttentionOfOneMatrixIsTheSame) {
  const at::Tensor matrix = random({2, 320, 10, 64}), dy = random({2, 320, 6, 64});
  for (const std::optional<double> scale : {std::optional<double>(), {0.2}}) {
    compare([&](at::Device device) -> Results {
      const at::Tensor all = matrix.to(device);
      const auto part = [&](int64_t from, int64_t heads) {
        return all.narrow(2, from, heads).detach().set_requires_grad(true);
      };
      const at::Tensor q = part(0, 6), k = part(6, 2), v = part(8, 2);
      const AttentionProblem mask{{.scale = scale}};
      const at::Tensor y = attention(q, {k, v}, mask, fused());
      backward(y, dy.to(device));
      return {y, q.grad(), k.grad(), v.grad()};
    });
  }
}

TEST_P(GpuOps, AttentionToLaterKeysWithDropoutIsTheSame) {
  const at::Tensor q = random({2, 300, 6, 64}), k = random({2, 300, 2, 64});
  const at::Tensor v = random({2, 300, 2, 64}), dy = random({2, 300, 6, 64});
  const at::Tensor end = at::full({2, 300}, 300, at::kInt);
  end[1].fill_(123);
  compare([&](at::Device device) -> Results {
    const at::Tensor mq = leaf(q.to(device)), mk = leaf(k.to(device)),
                     mv = leaf(v.to(device));
    AttentionProblem mask;
    mask.document_end = end.to(device);
    mask.dropout.probability = 0.1;
    mask.dropout.key = 7;
    mask.dropout.sequences = at::tensor({3L, 1L << 40}, at::kLong).to(device);
    const at::Tensor y = attention(mq, {mk, mv}, mask, fused());
    backward(y, dy.to(device));
    return {y, mq.grad(), mk.grad(), mv.grad()};
  });
}

TEST_P(GpuOps, DropoutIsTheSame) {
  const at::Tensor x = random({50, 130}), dy = random({50, 130});
  compare([&](at::Device device) -> Results {
    const at::Tensor in = leaf(x.to(device));
    Dropout draws;
    draws.probability = 0.3;
    draws.key = 7;
    draws.sequences = at::arange(50, at::kLong).mul(1L << 41).to(device);
    draws.index = at::arange(50, at::kInt).to(device);
    const at::Tensor y = dropout(in, draws, fused());
    backward(y, dy.to(device));
    return {y, in.grad()};
  });
}

TEST_P(GpuOps, LossHeadIsTheSame) {
  const at::Tensor h = random({150, 24}), w = random({101, 24});
  at::Tensor targets = at::randint(0, 101, {150}, at::kLong);
  targets.narrow(0, 10, 20).fill_(-100);
  for (const double divisor : {1.0, 6.0}) {
    compare([&](at::Device device) -> Results {
      const auto weight = weight_on(w, device);
      const at::Tensor in = leaf(h.to(device));
      LossHeadOptions options{1.0 / 130.0, 1e-3, fused()};
      options.logits_divisor = divisor;
      const auto result = loss_head(in, weight, targets.to(device), options);
      torch::autograd::backward({result.loss}, {});
      return {result.loss, in.grad(), weight->grad()};
    });
  }
}

}  // namespace
}  // namespace longhaul::ops
