// Medians of the CPU kernels on the shapes of a 125M Llama (batch 2 x 1024, hidden 768,
// feed forward 2048, 12 query and 4 key heads of 64, vocabulary 32000).
//   bench_kernels [rounds [substring of the names]]
#include <fmt/core.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/ops/kernels/cpu.h"

namespace {

using namespace longhaul;
using namespace longhaul::kernels;

constexpr int64_t kTokens = 2048;
constexpr int64_t kHidden = 768;
constexpr int64_t kWide = 2048;

std::vector<Bf16> values(int64_t count) {
  std::vector<Bf16> out(static_cast<size_t>(count));
  uint32_t state = 1;
  for (Bf16& x : out) {
    state = state * 1664525U + 1013904223U;
    const float unit = static_cast<float>(state >> 8) / (1 << 23) - 1.0F;
    x.bits = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, unit) >> 16);
  }
  return out;
}

/// Times what matches the filter and prints it.
class Report {
 public:
  Report(int rounds, std::string filter) : rounds_(rounds), filter_(std::move(filter)) {}

  /// Times `body`; `work` is in floating-point operations or bytes, and `unit` names the
  /// rate per second.
  void operator()(const std::string& name, double work, const char* unit,
                  const std::function<void()>& body) const {
    if (name.find(filter_) == std::string::npos) return;
    body();
    std::vector<double> seconds;
    // The time of all threads, without the turns of other processes.
    std::vector<double> processor;
    for (int i = 0; i < rounds_; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const std::clock_t ticks = std::clock();
      body();
      const std::chrono::duration<double> spent =
          std::chrono::steady_clock::now() - begin;
      seconds.push_back(spent.count());
      processor.push_back(static_cast<double>(std::clock() - ticks) / CLOCKS_PER_SEC);
    }
    std::sort(seconds.begin(), seconds.end());
    std::sort(processor.begin(), processor.end());
    const double median = seconds[seconds.size() / 2];
    fmt::print("{:<59} {:>9.3f} ms {:>7.1f} {} (least CPU {:.3f} ms)\n", name,
               median * 1e3, work / median * 1e-9, unit, processor.front() * 1e3);
  }

 private:
  int rounds_;
  std::string filter_;
};

struct MaskKind {
  const char* name;
  bool later;  ///< keys are seen
  bool drops;
};

void attention(system::Isa isa, int64_t batch, int64_t length, int64_t query_heads,
               int64_t key_heads, int64_t dim, const Report& report,
               const MaskKind& mask = {"", false, false}) {
  const auto q = values(batch * length * query_heads * dim);
  const auto k = values(batch * length * key_heads * dim);
  const auto v = values(batch * length * key_heads * dim);
  auto out = q;
  auto dq = q;
  auto dk = k;
  auto dv = k;
  std::vector<float> lse(static_cast<size_t>(batch * query_heads * length));
  const AttentionStrides qs = attention_strides(length, query_heads, dim);
  const AttentionStrides ks = attention_strides(length, key_heads, dim);
  AttentionShape shape{
      batch,     length, length, query_heads,
      key_heads, dim,    0,      1.0F / std::sqrt(static_cast<float>(dim)),
      nullptr};
  const std::vector<int32_t> ends(static_cast<size_t>(batch * length),
                                  static_cast<int32_t>(length));
  const std::vector<int64_t> sequences(static_cast<size_t>(batch), 3);
  if (mask.later) shape.document_end = ends.data();
  if (mask.drops) {
    shape.dropout = {{7, 429496730U, 1.0F / 0.9F}, sequences.data(), 0};
  }
  const auto squares = (mask.later ? 2.0 : 1.0) *
                       static_cast<double>(batch * query_heads * length * length * dim);
  const std::string name =
      fmt::format("{} D{} S{}{}", system::isa_name(isa), dim, length, mask.name);
  report("attention " + name, 2 * squares, "GFLOP/s", [&] {
    run(AttentionForward<Bf16>{shape,
                               {q.data(), qs},
                               {k.data(), ks},
                               {v.data(), ks},
                               {out.data(), qs},
                               lse.data()},
        isa);
  });
  report("attention backward " + name, 5 * squares, "GFLOP/s", [&] {
    run(AttentionBackward<Bf16>{shape,
                                {q.data(), qs},
                                {k.data(), ks},
                                {v.data(), ks},
                                {out.data(), qs},
                                {q.data(), qs},
                                lse.data(),
                                {dq.data(), qs},
                                {dk.data(), ks},
                                {dv.data(), ks}},
        isa);
  });
}

void weight_gradients(const Report& report) {
  if (!weight_gradient_available()) return;
  constexpr std::array<std::array<int64_t, 2>, 5> kShapes = {{{kHidden, kHidden},
                                                              {256, kHidden},
                                                              {kWide, kHidden},
                                                              {kHidden, kWide},
                                                              {8192, kHidden}}};
  for (const auto& shape : kShapes) {
    const int64_t n = shape[0];
    const int64_t k = shape[1];
    const auto dy = values(kTokens * n);
    const auto x = values(kTokens * k);
    std::vector<float> grad(static_cast<size_t>(n * k));
    report(fmt::format("weight gradient {}x{}", n, k),
           2.0 * static_cast<double>(kTokens * n * k), "GFLOP/s", [&] {
             accumulate_weight_gradient(dy.data(), n, x.data(), k, kTokens, n, k,
                                        grad.data());
           });
  }
}

/// Times one linear layer: forward, the gradient of the input, and the gradient of the
/// weight.
void products(system::Isa isa, const Report& report) {
  constexpr std::array<std::array<int64_t, 2>, 5> kShapes = {{{kHidden, kHidden},
                                                              {kHidden, 1280},
                                                              {kHidden, 2 * kWide},
                                                              {kWide, kHidden},
                                                              {kHidden, 32000}}};
  for (const auto& sizes : kShapes) {
    const int64_t k = sizes[0];
    const int64_t n = sizes[1];
    const auto x = values(kTokens * k);
    const auto w = values(n * k);
    const auto dy = values(kTokens * n);
    auto y = dy;
    auto dx = x;
    std::vector<float> grad(static_cast<size_t>(n * k));
    const double work = 2.0 * static_cast<double>(kTokens * n * k);
    const std::string shape = fmt::format("{}x{}", n, k);
    report("product " + shape, work, "GFLOP/s", [&] {
      run(Product{.a = {x.data(), k, 1},
                  .b = {w.data(), 1, k},
                  .M = kTokens,
                  .K = k,
                  .N = n,
                  .y = y.data()},
          isa);
    });
    report("product back " + shape, work, "GFLOP/s", [&] {
      run(Product{.a = {dy.data(), n, 1},
                  .b = {w.data(), k, 1},
                  .M = kTokens,
                  .K = n,
                  .N = k,
                  .y = dx.data()},
          isa);
    });
    report("product for weights " + shape, work, "GFLOP/s", [&] {
      run(Product{.a = {dy.data(), 1, n},
                  .b = {x.data(), k, 1},
                  .M = n,
                  .K = kTokens,
                  .N = k,
                  .y = nullptr,
                  .add = true,
                  .wide = grad.data()},
          isa);
    });
  }
  // All operands lie in the caches. The other kernels are compared with this one.
  const auto a = values(96 * 256);
  std::vector<float> sums(96 * 512);
  const auto b = values(256 * 512);
  report("product 96x256x512", 2.0 * 96 * 256 * 512, "GFLOP/s", [&] {
    run(Product{.a = {a.data(), 256, 1},
                .b = {b.data(), 512, 1},
                .M = 96,
                .K = 256,
                .N = 512,
                .y = nullptr,
                .add = true,
                .wide = sums.data()},
        isa);
  });
}

void pointwise(system::Isa isa, const Report& report) {
  const auto x = values(kTokens * kHidden);
  auto y = x;
  auto h = x;
  const auto weight = values(kHidden);
  std::vector<float> inverse(kTokens);
  std::vector<float> dweight(kHidden);
  const auto bytes = [](int64_t count) { return 2.0 * static_cast<double>(count); };
  report("norm", bytes(2 * kTokens * kHidden), "GB/s", [&] {
    run(RmsNormForward<Bf16>{x.data(), kHidden, weight.data(), 1e-5, kTokens, 1, kHidden,
                             y.data(), inverse.data()},
        isa);
  });
  report("norm backward", bytes(3 * kTokens * kHidden), "GB/s", [&] {
    run(RmsNormBackward<Bf16>{y.data(), x.data(), kHidden, inverse.data(), weight.data(),
                              kTokens, 1, kHidden, h.data(), kHidden, dweight.data()},
        isa);
  });
  const std::vector<float> table(1024 * 32, 0.5F);
  const std::vector<int32_t> ids(kTokens, 7);
  report("rope", bytes(2 * kTokens * kHidden), "GB/s", [&] {
    run(Rope<Bf16>{x.data(), kHidden, 64, kTokens, 12, 64, table.data(), table.data(),
                   ids.data(), false, y.data(), kHidden, 64},
        isa);
  });
  const auto gate = values(kTokens * kWide);
  auto act = gate;
  auto dgate = gate;
  auto dup = gate;
  const std::vector<int64_t> sequences(kTokens, 3);
  report("dropout", bytes(2 * kTokens * kHidden), "GB/s", [&] {
    run(Dropout<Bf16>{x.data(),
                      sequences.data(),
                      ids.data(),
                      kTokens,
                      kHidden,
                      {7, 429496730U, 1.0F / 0.9F},
                      y.data()},
        isa);
  });
  report("swiglu", bytes(3 * kTokens * kWide), "GB/s", [&] {
    run(GatedProductForward<Bf16>{Activation::Silu, gate.data(), gate.data(), kWide,
                                  kTokens, kWide, act.data()},
        isa);
  });
  report("swiglu backward", bytes(5 * kTokens * kWide), "GB/s", [&] {
    run(GatedProductBackward<Bf16>{Activation::Silu, act.data(), gate.data(), gate.data(),
                                   kWide, kTokens, kWide, dgate.data(), dup.data(),
                                   kWide},
        isa);
  });
  constexpr int64_t kRows = 512;
  constexpr int64_t kVocabulary = 32000;
  const auto logits = values(kRows * kVocabulary);
  auto work = logits;
  const std::vector<int64_t> targets(kRows, 11);
  std::vector<float> loss(kRows);
  std::vector<float> squares(kRows);
  report("cross-entropy 512 x 32000", bytes(2 * kRows * kVocabulary), "GB/s", [&] {
    run(CrossEntropy<Bf16>{work.data(), targets.data(), kRows, kVocabulary, 1e-3, 1e-4,
                           true, loss.data(), squares.data()},
        isa);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 11;
  const Report report(rounds, argc > 2 ? argv[2] : "");
  fmt::print("{}, {} threads, median of {}\n", system::isa_name(system::best_isa()),
             omp_get_max_threads(), rounds);
  for (system::Isa isa : {system::Isa::Avx2, system::Isa::Avx512, system::Isa::Avx512Bf16,
                          system::Isa::Amx}) {
    if (isa > system::best_isa()) continue;
    attention(isa, 2, 1024, 12, 4, 64, report);
    attention(isa, 2, 512, 12, 12, 64, report, {" two-sided", true, false});
    attention(isa, 2, 512, 12, 12, 64, report, {" two-sided, dropout", true, true});
  }
  attention(system::best_isa(), 1, 2048, 8, 2, 128, report);
  weight_gradients(report);
  if (product_available()) products(product_isa(), report);
  pointwise(system::best_isa(), report);
  return 0;
}
