// Compares each fused operation with its composite form in LibTorch's operations. Both
// run forward and backward in bf16, in turn, and the medians count. The shapes are those
// of a 125M Llama (batch 2 x 1024, hidden 768, feed forward 2048, 12 query and 4 key
// heads of 64, vocabulary 32000).
//   bench_operations [rounds [substring of the names]]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/ops/attention/attention.h"
#include "longhaul/ops/dropout.h"
#include "longhaul/ops/fused/fused.h"
#include "longhaul/ops/gated_product.h"
#include "longhaul/ops/linear/weight_gradients.h"
#include "longhaul/ops/loss_head.h"
#include "longhaul/ops/rms_norm.h"
#include "longhaul/ops/rope.h"
#include "longhaul/optim/operators.h"
#include "longhaul/system/isa.h"
#include "longhaul/tensor/cpu_memory.h"
#include "longhaul/tensor/vector_math.h"

namespace {

using namespace longhaul;

constexpr int64_t kSequences = 2;
constexpr int64_t kLength = 1024;
constexpr int64_t kTokens = kSequences * kLength;
constexpr int64_t kHidden = 768;
constexpr int64_t kWide = 2048;
constexpr int64_t kHeads = 12;
constexpr int64_t kKeyHeads = 4;
constexpr int64_t kHeadDim = 64;
constexpr int64_t kVocabulary = 32000;

at::Tensor values(at::IntArrayRef sizes) { return at::randn(sizes).to(at::kBFloat16); }

at::Tensor leaf(at::IntArrayRef sizes) { return values(sizes).set_requires_grad(true); }

tensor::ParameterPtr parameter(at::IntArrayRef sizes) {
  auto made = tensor::make_parameter("w", sizes.vec(), {});
  made->set_frozen(false);
  made->bind(values(sizes), at::zeros(sizes, at::kFloat));
  return made;
}

void backward(const at::Tensor& y, const at::Tensor& dy) {
  torch::autograd::backward({y}, {dy});
}

double median(std::vector<double> x) {
  std::ranges::sort(x);
  return x[x.size() / 2];
}

class Report {
 public:
  Report(int rounds, std::string filter) : rounds_(rounds), filter_(std::move(filter)) {
    fmt::print("{:<34} {:>12} {:>12} {:>10}\n", "", "fused", "composite", "faster");
  }

  /// Times body(fused) for both forms.
  void operator()(const std::string& name, const std::function<void(bool)>& body) const {
    if (name.find(filter_) == std::string::npos) return;
    std::vector<double> seconds[2];
    for (int i = -1; i < rounds_; ++i) {
      for (const bool fused : {true, false}) {
        const auto begin = std::chrono::steady_clock::now();
        body(fused);
        const std::chrono::duration<double> spent =
            std::chrono::steady_clock::now() - begin;
        if (i >= 0) seconds[fused ? 0 : 1].push_back(spent.count());
      }
    }
    std::vector<double> ratios;
    for (size_t i = 0; i < seconds[0].size(); ++i) {
      ratios.push_back(seconds[1][i] / seconds[0][i]);
    }
    fmt::print("{:<34} {:>9.3f} ms {:>9.3f} ms {:>9.2f}x\n", name,
               1e3 * median(seconds[0]), 1e3 * median(seconds[1]), median(ratios));
  }

 private:
  int rounds_;
  std::string filter_;
};

void norms_and_activations(const Report& report) {
  const at::Tensor x = leaf({kTokens, kHidden});
  const at::Tensor dx = values({kTokens, kHidden});
  const tensor::ParameterPtr weight = parameter({kHidden});
  report("RMSNorm", [&](bool fused) {
    x.mutable_grad().reset();
    backward(ops::rms_norm(x, weight, 1e-5, fused), dx);
  });
  const at::Tensor delta = leaf({kTokens, kHidden});
  report("residual sum and RMSNorm", [&](bool fused) {
    x.mutable_grad().reset();
    delta.mutable_grad().reset();
    const auto [sum, normed] = ops::residual_rms_norm(x, delta, weight, 1e-5, fused);
    torch::autograd::backward({sum, normed}, {dx, dx});
  });
  const at::Tensor heads = leaf({kTokens, kHeads, kHeadDim});
  const at::Tensor dheads = values({kTokens, kHeads, kHeadDim});
  const ops::RopeTable table =
      ops::make_rope_table({.theta = 10000.0}, kHeadDim, kLength, at::kCPU);
  const at::Tensor positions = at::arange(kLength, at::kInt).repeat({kSequences});
  report("rotary positions", [&](bool fused) {
    heads.mutable_grad().reset();
    backward(ops::rope(heads, table, positions, fused), dheads);
  });
  const at::Tensor gate = leaf({kTokens, kWide});
  const at::Tensor up = leaf({kTokens, kWide});
  const at::Tensor dwide = values({kTokens, kWide});
  report("SwiGLU", [&](bool fused) {
    gate.mutable_grad().reset();
    up.mutable_grad().reset();
    backward(ops::gated_product(gate, up, Activation::Silu, fused), dwide);
  });
  ops::Dropout drops;
  drops.probability = 0.1;
  drops.key = 7;
  drops.sequences = at::zeros({kTokens}, at::kLong);
  drops.index = positions;
  report("dropout", [&](bool fused) {
    x.mutable_grad().reset();
    backward(ops::dropout(x, drops, fused), dx);
  });
}

void attention(const Report& report) {
  // LibTorch's products in bf16 are very slow on some processors, so both types are
  // measured.
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    const auto make = [&](int64_t heads) {
      return at::randn({kSequences, kLength, heads, kHeadDim}).to(type);
    };
    const at::Tensor q = make(kHeads).set_requires_grad(true);
    const at::Tensor k = make(kKeyHeads).set_requires_grad(true);
    const at::Tensor v = make(kKeyHeads).set_requires_grad(true);
    const at::Tensor dy = make(kHeads);
    report(fmt::format("attention, {}", type == at::kFloat ? "fp32" : "bf16"),
           [&](bool fused) {
             for (const at::Tensor& x : {q, k, v}) x.mutable_grad().reset();
             backward(ops::attention(q, {k, v}, {}, fused), dy);
           });
  }
}

void loss(const Report& report) {
  at::Tensor logits = values({kTokens, kVocabulary});
  at::Tensor each = at::empty({kTokens});
  at::Tensor squared = at::empty({kTokens});
  const at::Tensor targets = at::randint(kVocabulary, {kTokens}, at::kLong);
  report("cross-entropy and its gradient", [&](bool fused) {
    if (fused) {
      ops::fused::op<kernels::CrossEntropy>(logits, targets, 1.0, 0.0,
                                            /*want_gradient=*/true, each, squared);
    } else {
      ops::cross_entropy(logits.detach().set_requires_grad(true), targets, {});
    }
  });
}

void weight_gradients(const Report& report) {
  const at::Tensor x = values({kTokens, kHidden});
  for (const int64_t outputs : {kHidden, 2 * kWide, kVocabulary}) {
    const at::Tensor dy = values({kTokens, outputs});
    const at::Tensor grad = at::zeros({outputs, kHidden});
    report(fmt::format("weight gradient {} x {}", outputs, kHidden), [&](bool fused) {
      if (fused) {
        ops::accumulate_weight_gradient(grad, x, dy);
      } else {
        at::Tensor(grad).add_(at::mm(dy.t(), x));
      }
    });
  }
}

void optimizer(const Report& report) {
  constexpr int64_t kElements = int64_t{1} << 24;
  const optim::AdamWTensors t{at::randn({kElements}), at::randn({kElements}),
                              at::zeros({kElements}), at::zeros({kElements}),
                              values({kElements})};
  optim::AdamWStep step;
  step.lr = 1e-4;
  report("AdamW", [&](bool fused) {
    fused ? optim::update_adamw(t, step) : optim::adamw_composite(t, step);
  });
  const at::Tensor sum = at::zeros({1}, at::kDouble);
  report("sum of squares", [&](bool fused) {
    fused ? optim::add_squares({t.gradient}, {0}, sum)
          : optim::add_squares_composite(t.gradient, sum);
  });
}

}  // namespace

int main(int argc, char** argv) {
  tensor::warm_up_vector_math();
  tensor::tune_cpu_memory();
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 11;
  fmt::print("{}, {} threads, median of {} rounds\n",
             system::isa_name(system::best_isa()), at::get_num_threads(), rounds);
  const Report report(rounds, argc > 2 ? argv[2] : "");
  norms_and_activations(report);
  attention(report);
  loss(report);
  weight_gradients(report);
  optimizer(report);
  return 0;
}
