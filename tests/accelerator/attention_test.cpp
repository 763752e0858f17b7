#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "longhaul/device/device.h"
#include "longhaul/ops/attention/attention.h"
#include "tests/accelerator/loaded.h"
#include "tests/support/parameters.h"

// The device gets kernels of LibTorch's overrideable attention for a while, in the form
// that Neuron's plug-in has: a log-sum-exp in grad mode only, and gradients that are
// transposed views.

namespace longhaul::softdev_test {
namespace {

int forwards = 0, backwards = 0;

at::Tensor repeated(const at::Tensor& x, const at::Tensor& q) {
  return x.cpu().repeat_interleave(q.size(1) / x.size(1), 1);
}

/// Returns the probabilities [B, H, S, S] and the log of their denominators, on the CPU.
std::pair<at::Tensor, at::Tensor> probabilities(const at::Tensor& q, const at::Tensor& k,
                                                double scale) {
  const at::Tensor hidden =
      at::ones({q.size(2), k.size(2)}, at::kBool).triu(/*diagonal=*/1);
  const at::Tensor scores = at::matmul(q.cpu(), repeated(k, q).transpose(2, 3))
                                .mul(scale)
                                .masked_fill(hidden, -HUGE_VAL);
  return {at::softmax(scores, -1), at::logsumexp(scores, -1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt,
           at::Tensor, at::Tensor, at::Tensor>
overriding_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const std::optional<at::Tensor>& bias, double dropout, bool causal,
                   bool /*debug*/, std::optional<double> scale) {
  TORCH_CHECK(!bias && dropout == 0.0 && causal && scale, "arguments that do not fit");
  ++forwards;
  const auto [p, lse] = probabilities(q, k, *scale);
  const at::Tensor known = at::GradMode::is_enabled() ? lse : at::empty({0});
  return {at::matmul(p, repeated(v, q)).to(q.device()),
          known.to(q.device()),
          {},
          {},
          q.size(2),
          k.size(2),
          {},
          {},
          {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> overriding_backward(
    const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& /*bias*/, std::array<bool, 4> /*wanted*/, const at::Tensor& y,
    const at::Tensor& lse, const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt,
    double, bool, const at::Tensor&, const at::Tensor&, std::optional<double> scale) {
  ++backwards;
  const auto [p, known] = probabilities(q, k, *scale);
  TORCH_CHECK(at::allclose(lse.cpu(), known), "the log-sum-exp of another forward");
  const at::Tensor d = dy.cpu(), delta = (d * y.cpu()).sum(-1, true);
  const at::Tensor ds =
      p * (at::matmul(d, repeated(v, q).transpose(2, 3)) - delta) * *scale;
  const auto of_keys = [&](const at::Tensor& x) {
    return x.view({q.size(0), k.size(1), -1, k.size(2), k.size(3)}).sum(2);
  };
  const auto transposed = [&](const at::Tensor& x) {
    return x.transpose(1, 2).contiguous().to(q.device()).transpose(1, 2);
  };
  return {transposed(at::matmul(ds, repeated(k, q))),
          transposed(of_keys(at::matmul(ds.transpose(2, 3), q.cpu()))),
          transposed(of_keys(at::matmul(p.transpose(2, 3), d))),
          {}};
}

struct Attention {
  std::vector<at::Tensor> inputs = {at::randn({2, 24, 6, 8}), at::randn({2, 24, 2, 8}),
                                    at::randn({2, 24, 2, 8})};
  at::Tensor dout = at::randn({2, 24, 6, 8});

  /// Returns the result and the gradients, on the CPU.
  std::vector<at::Tensor> run(at::Device device, const ops::AttentionProblem& problem) {
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& x : inputs) leaves.push_back(ops::leaf(x.to(device)));
    const at::Tensor y = ops::attention(leaves[0], {leaves[1], leaves[2]}, problem, true);
    const device::BackwardHere here;
    ops::backward(y, dout.to(device));
    std::vector<at::Tensor> all = {y.detach().cpu()};
    for (const at::Tensor& x : leaves) all.push_back(x.grad().cpu());
    return all;
  }
};

TEST(OverrideableAttention, IsTakenWhereTheDeviceHasItAndItFits) {
  const at::Device there = device();
  torch::Library kernels(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1,
                         __FILE__, __LINE__);
  kernels.impl("_scaled_dot_product_fused_attention_overrideable", overriding_forward);
  kernels.impl("_scaled_dot_product_fused_attention_overrideable_backward",
               overriding_backward);
  Attention attention;
  ops::AttentionProblem scaled, windowed, in_documents;
  scaled.scale = 0.3;
  windowed.window = 5;
  ops::AttentionProblem in_documents_here;
  in_documents_here.document_start = at::zeros({2, 24}, at::kInt);
  in_documents_here.document_start.narrow(1, 9, 15).fill_(9);
  in_documents.document_start = in_documents_here.document_start.to(there);
  forwards = backwards = 0;
  int taken = 0;
  for (const auto& [problem, of_cpu, fits] :
       std::vector<std::tuple<ops::AttentionProblem, ops::AttentionProblem, bool>>{
           {{}, {}, true},
           {scaled, scaled, true},
           {windowed, windowed, false},
           {in_documents, in_documents_here, false}}) {
    const auto want = attention.run(at::kCPU, of_cpu);
    const auto got = attention.run(there, problem);
    for (size_t i = 0; i < want.size(); ++i) {
      ops::expect_close(got[i], want[i], 1e-5, "result " + std::to_string(i));
    }
    if (fits) ++taken;
    EXPECT_EQ(forwards, taken);
    EXPECT_EQ(backwards, taken);
  }
  EXPECT_EQ(ops::describe_attention({}, 64, 0.0, at::kFloat, there), "the device's own");
  EXPECT_NE(ops::describe_attention({}, 64, 0.1, at::kFloat, there), "the device's own");
}

TEST(OverrideableAttention, IsNotTakenWhereTheDeviceHasNoKernel) {
  Attention attention;
  forwards = 0;
  attention.run(device(), {});
  EXPECT_EQ(forwards, 0);
}

}  // namespace
}  // namespace longhaul::softdev_test
