#include "longhaul/measure/compute.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <array>
#include <memory>
#include <string>

#include "longhaul/device/device.h"
#include "longhaul/ops/attention/attention.h"
#include "longhaul/ops/experts/grouped_linear.h"
#include "longhaul/ops/linear/products.h"
#include "longhaul/ops/linear/weight_gradients.h"
#include "longhaul/tensor/parameter.h"

namespace longhaul::measure {
namespace {

/// The shape of a product [T, K] x [N, K]^T.
struct Shape {
  int64_t T, K, N;
};
/// Sizes are multiplied by this on a device: small products do not fill a GPU.
constexpr int64_t kTimesOnDevice = 4;
constexpr std::array<Shape, 5> kShapes = {
    Shape{2048, 1024, 1024}, Shape{2048, 1024, 4096}, Shape{2048, 4096, 1024},
    Shape{2048, 2048, 2048}, Shape{512, 1024, 1024}};
/// Experts whose matrices do not fit into a CPU's caches together, as a layer's do not.
constexpr int64_t kExperts = 16;
constexpr int64_t kCopyBytes = int64_t{256} << 20;

/// Sequences, positions, query heads, key heads and head dim of an attention.
struct Heads {
  int64_t B = 1, S = 2048, Hq = 16, Hkv = 4, D = 64;
};

void wait_for(at::Device device) {
  if (!device.is_cpu()) device::mark(device).synchronize();
}

/// Returns values of which no two neighbours are alike: a GPU that multiplies ones saves
/// power, and is faster than with weights.
at::Tensor values(at::IntArrayRef shape, at::ScalarType dtype, at::Device device) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return at::arange(count, at::TensorOptions(at::kFloat))
      .sin_()
      .view(shape)
      .to(at::TensorOptions(device).dtype(dtype));
}

Probe product(const Shape& s, at::ScalarType dtype, const char* name, at::Device device) {
  const at::Tensor x = values({s.T, s.K}, dtype, device);
  const at::Tensor w = values({s.N, s.K}, dtype, device);
  return {fmt::format("product {} {}x{}x{}", name, s.T, s.K, s.N), "FLOP",
          2.0 * static_cast<double>(s.T * s.K * s.N), [x, w, device] {
            const at::NoGradGuard no_grad;
            const at::Tensor y = ops::linear_product(x, w);
            wait_for(device);
          }};
}

Probe weight_gradient(const Shape& s, at::Device device) {
  const at::Tensor x = values({s.T, s.K}, at::kBFloat16, device);
  const at::Tensor dy = values({s.T, s.N}, at::kBFloat16, device);
  const at::Tensor grad =
      at::zeros({s.N, s.K}, at::TensorOptions(device).dtype(at::kFloat));
  return {fmt::format("weight gradient {}x{}x{}", s.T, s.K, s.N), "FLOP",
          2.0 * static_cast<double>(s.T * s.K * s.N), [x, dy, grad, device] {
            ops::accumulate_weight_gradient(grad, x, dy);
            wait_for(device);
          }};
}

/// The arithmetic of causal attention: two products over half of the scores in the
/// forward, and five in the backward, which computes the scores again (Dao et al.,
/// "FlashAttention", section 3).
constexpr double kForwardProducts = 2.0;
constexpr double kBackwardProducts = 5.0;

/// Computes the gradients of `inputs` from that of y.
void run_backward(const at::Tensor& y, const at::Tensor& dy,
                  const std::vector<at::Tensor>& inputs) {
  std::vector<torch::autograd::Edge> edges;
  for (const at::Tensor& input : inputs) {
    edges.push_back(torch::autograd::impl::gradient_edge(input));
  }
  torch::autograd::Engine::get_default_engine().execute(
      {torch::autograd::impl::gradient_edge(y)}, {dy}, /*keep_graph=*/false,
      /*create_graph=*/false, /*accumulate_grad=*/false, edges);
}

Probe attention(const Heads& h, at::ScalarType dtype, bool backward, at::Device device) {
  const auto input = [&](int64_t heads) {
    return values({h.B, h.S, heads, h.D}, dtype, device).requires_grad_(backward);
  };
  const at::Tensor q = input(h.Hq), k = input(h.Hkv), v = input(h.Hkv);
  const at::Tensor dy = values({h.B, h.S, h.Hq, h.D}, dtype, device);
  const double half_product =
      2.0 * static_cast<double>(h.B * h.Hq * h.S * h.S * h.D) / 2.0;
  const double products = kForwardProducts + (backward ? kBackwardProducts : 0.0);
  return {
      fmt::format("attention {}{}{}x{}, {}/{} heads of {}",
                  dtype == at::kFloat ? "fp32 " : "",
                  backward ? "and backward " : "forward ", h.B, h.S, h.Hq, h.Hkv, h.D),
      "FLOP", products * half_product, [q, k, v, dy, backward, device] {
        const device::BackwardHere here;
        const at::AutoGradMode mode(backward);
        const at::Tensor y = ops::attention(q, {k, v}, {}, /*fused=*/true);
        if (backward) run_backward(y, dy, {q, k, v});
        wait_for(device);
      }};
}

/// Returns the matrices [N, K] of experts, side by side in one memory as in a bucket.
ops::ExpertWeights expert_weights(int64_t N, int64_t K, at::ScalarType dtype,
                                  at::Device device) {
  const at::Tensor all = values({N, K}, dtype, device).repeat({kExperts, 1, 1});
  const at::Tensor gradients =
      at::zeros({kExperts, N, K}, at::TensorOptions(device).dtype(at::kFloat));
  ops::ExpertWeights weights;
  for (int64_t e = 0; e < kExperts; ++e) {
    const auto parameter = tensor::make_parameter(std::to_string(e), {N, K}, {});
    parameter->set_frozen(false);
    parameter->bind(all[e], gradients[e]);
    weights.push_back({parameter});
  }
  return weights;
}

Probe grouped_product(int64_t rows, const ops::ExpertWeights& weights,
                      at::ScalarType dtype, at::Device device) {
  const std::vector<int64_t>& extent = weights.front().front()->slice().extent;
  const int64_t R = kExperts * rows, N = extent[0], K = extent[1];
  const at::Tensor x = values({R, K}, dtype, device).requires_grad_(true);
  const at::Tensor dy = values({R, N}, dtype, device);
  const at::Tensor offsets = at::arange(0, R + 1, rows, at::kInt).to(device);
  const auto queue = std::make_shared<ops::WeightGradients>();
  // The products of the forward, of the rows' gradients and of the weights' gradients.
  return {grouped_product_name(dtype == at::kBFloat16, rows), "FLOP",
          3.0 * 2.0 * static_cast<double>(R * K * N),
          [x, dy, offsets, weights, queue, device] {
            const device::BackwardHere here;
            const at::AutoGradMode mode(true);
            const at::Tensor y =
                ops::grouped_linear(x, offsets, weights, queue, /*fused=*/true)[0];
            run_backward(y, dy, {x});
            wait_for(device);
          }};
}

Probe copy(at::Device device) {
  const auto options = at::TensorOptions(device).dtype(at::kFloat);
  const at::Tensor from = at::zeros({kCopyBytes / 4}, options);
  const at::Tensor to = at::zeros({kCopyBytes / 4}, options);
  return {"copy through memory, read and written", "B", 2.0 * kCopyBytes,
          [from, to, device] {
            at::Tensor(to).copy_(from);
            wait_for(device);
          }};
}

std::vector<Shape> shapes_on(at::Device device) {
  const int64_t times = device.is_cpu() ? 1 : kTimesOnDevice;
  std::vector<Shape> shapes;
  for (const Shape& s : kShapes) {
    shapes.push_back({s.T * times, s.K * times, s.N * times});
  }
  return shapes;
}

}  // namespace

std::vector<Probe> product_probes(at::Device device) {
  const Shape shape = shapes_on(device).front();
  return {product(shape, at::kBFloat16, "bf16", device),
          product(shape, at::kFloat, "fp32", device)};
}

std::vector<Probe> grouped_probes(at::ScalarType dtype, at::Device device) {
  const Shape shape = shapes_on(device).front();
  std::vector<Probe> probes = {product(shape, at::kBFloat16, "bf16", device)};
  const ops::ExpertWeights weights = expert_weights(shape.N, shape.K, dtype, device);
  for (const int64_t rows : kGroupedRows) {
    probes.push_back(grouped_product(rows, weights, dtype, device));
  }
  return probes;
}

std::vector<Probe> compute_probes(at::Device device) {
  const int64_t times = device.is_cpu() ? 1 : kTimesOnDevice;
  std::vector<Probe> probes;
  const std::vector<Shape> shapes = shapes_on(device);
  for (const Shape& s : shapes) {
    probes.push_back(product(s, at::kBFloat16, "bf16", device));
  }
  probes.push_back(product(shapes[0], at::kFloat, "fp32", device));
  probes.push_back(weight_gradient(shapes[1], device));
  Heads heads;
  heads.B *= times;
  probes.push_back(attention(heads, at::kBFloat16, /*backward=*/false, device));
  probes.push_back(attention(heads, at::kBFloat16, /*backward=*/true, device));
  probes.push_back(attention(heads, at::kFloat, /*backward=*/true, device));
  probes.push_back(copy(device));
  return probes;
}

}  // namespace longhaul::measure
