// The first projections of experts, forward and backward, in three forms: all experts at
// once; one product over all rows, with as many operations; and LibTorch's products, one
// expert after another. The forms run in turn; rates are medians. The sizes are those of
// Qwen3-30B-A3B: hidden 2048, inner 768, gate and up.
//   bench_experts [rounds [experts [rows of an expert...]]]
// LONGHAUL_TEST_ISA=AVX-512, or another name that the first line can show, makes longhaul
// take a weaker instruction set; ONEDNN_MAX_CPU_ISA=AVX512_CORE does so for LibTorch.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "longhaul/ops/experts/grouped_linear.h"
#include "longhaul/ops/linear/linear.h"
#include "longhaul/system/isa.h"
#include "longhaul/tensor/cpu_memory.h"
#include "longhaul/tensor/flat_buffers.h"
#include "longhaul/tensor/vector_math.h"

namespace {

using namespace longhaul;

constexpr int64_t kHidden = 2048;
constexpr int64_t kInner = 768;
constexpr int64_t kOut = 2 * kInner;

/// Experts, and the memory that a bucket gives them.
struct Weights {
  Weights(int64_t experts, at::ScalarType type)
      : memory(tensor::allocate_flat(experts * kOut * kHidden, type, at::kCPU)),
        grads(tensor::allocate_flat(memory.numel(), at::kFloat, at::kCPU)) {
    memory.uniform_(-0.1, 0.1);
    constexpr int64_t kElements = kInner * kHidden;
    for (int64_t e = 0; e < experts; ++e) {
      all.emplace_back();
      for (int64_t i = 2 * e; i < 2 * e + 2; ++i) {
        all.back().push_back(tensor::make_parameter("w", {kInner, kHidden}, {}));
        tensor::Parameter& w = *all.back().back();
        w.set_frozen(false);
        w.bind(memory.narrow(0, i * kElements, kElements).view({kInner, kHidden}),
               grads.narrow(0, i * kElements, kElements).view({kInner, kHidden}));
      }
    }
  }

  at::Tensor memory, grads;
  ops::ExpertWeights all;
};

/// Returns the seconds of each form in each round, after one round that does not count.
std::vector<std::vector<double>> in_turn(
    int rounds, const std::vector<std::function<void()>>& forms) {
  std::vector<std::vector<double>> seconds(forms.size());
  for (int i = -1; i < rounds; ++i) {
    for (size_t form = 0; form < forms.size(); ++form) {
      const auto begin = std::chrono::steady_clock::now();
      forms[form]();
      const std::chrono::duration<double> spent =
          std::chrono::steady_clock::now() - begin;
      if (i >= 0) seconds[form].push_back(spent.count());
    }
  }
  return seconds;
}

double median(std::vector<double> x) {
  std::ranges::sort(x);
  return x[x.size() / 2];
}

/// Times a form's forward and backward, whose weight gradients are added.
void compare(int rounds, const Weights& weights, int64_t rows, at::ScalarType type) {
  const auto experts = static_cast<int64_t>(weights.all.size());
  const int64_t all = experts * rows;
  const at::Tensor x = at::randn({all, kHidden}).to(type).set_requires_grad(true);
  const at::Tensor dy = at::randn({all, kOut}).to(type);
  const std::vector<at::Tensor> halves = {dy.narrow(1, 0, kInner),
                                          dy.narrow(1, kInner, kInner)};
  const at::Tensor offsets = at::arange(0, all + 1, rows, at::kInt);
  const auto queue = std::make_shared<ops::WeightGradients>();
  const auto dense = tensor::make_parameter("dense", {kOut, kHidden}, {});
  dense->set_frozen(false);
  dense->bind(weights.memory.narrow(0, 0, kOut * kHidden).view({kOut, kHidden}),
              weights.grads.narrow(0, 0, kOut * kHidden).view({kOut, kHidden}));
  const auto grouped = [&](bool fused) {
    x.mutable_grad().reset();
    torch::autograd::backward(ops::grouped_linear(x, offsets, weights.all, queue, fused),
                              halves);
  };
  const auto library = [&] {
    at::Tensor y = at::empty({all, kOut}, dy.options()), dx = at::empty_like(x);
    const at::NoGradGuard no_grad;
    for (int64_t e = 0; e < experts; ++e) {
      const auto of = [&](const at::Tensor& t) { return t.narrow(0, e * rows, rows); };
      const auto matrix = [&](const at::Tensor& t) {
        return t.narrow(0, e * kOut * kHidden, kOut * kHidden).view({kOut, kHidden});
      };
      at::Tensor of_y = of(y), of_dx = of(dx);
      at::mm_out(of_y, of(x), matrix(weights.memory).t());
      at::mm_out(of_dx, of(dy), matrix(weights.memory));
      matrix(weights.grads).add_(at::mm(of(dy).t(), of(x)));
    }
  };
  const auto seconds =
      in_turn(rounds, {[&] { grouped(true); },
                       [&] {
                         x.mutable_grad().reset();
                         torch::autograd::backward({ops::linear(x, dense, queue)}, {dy});
                       },
                       library, [&] { grouped(false); }});
  std::array<double, 4> rate{};
  const double work = 6.0 * static_cast<double>(all * kOut * kHidden) * 1e-9;
  for (size_t i = 0; i < rate.size(); ++i) rate[i] = work / median(seconds[i]);
  fmt::print("{} {:>5} rows {:>9.0f} {:>9.0f} {:>9.2f} {:>9.0f} {:>9.0f}\n",
             type == at::kFloat ? "fp32" : "bf16", rows, rate[0], rate[1],
             rate[0] / rate[1], rate[2], rate[3]);
}

}  // namespace

int main(int argc, char** argv) {
  tensor::warm_up_vector_math();
  tensor::tune_cpu_memory();
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  const int64_t experts = argc > 2 ? std::max(1, std::atoi(argv[2])) : 32;
  std::vector<int64_t> rows;
  for (int i = 3; i < argc; ++i) rows.push_back(std::max(1, std::atoi(argv[i])));
  if (rows.empty()) rows = {16, 64, 128, 256, 512, 1024};
  fmt::print("{}, {} threads, {} experts, GFLOP/s, median of {}\n",
             system::isa_name(system::best_isa()), at::get_num_threads(), experts,
             rounds);
  fmt::print("{:<15} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "", "at once", "dense", "ratio",
             "LibTorch", "composite");
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    const Weights weights(experts, type);
    for (const int64_t count : rows) compare(rounds, weights, count, type);
  }
  return 0;
}
