#include "longhaul/ops/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "longhaul/base/error.h"
#include "longhaul/ops/common/node.h"
#include "longhaul/ops/fused/fused.h"
#include "longhaul/ops/narrow/draws.h"

namespace longhaul::ops {
namespace {

/// The four words of Philox, as int64 in [0, 2^32).
using Words = std::array<at::Tensor, 4>;

constexpr int64_t kWord = 0xFFFFFFFF;

/// Returns the upper word of a product of two words. The product may be negative as
/// int64, so that the shift brings in sign bits, which the mask removes.
at::Tensor upper(const at::Tensor& product) {
  return product.bitwise_right_shift(32) & kWord;
}

Words composite_philox(uint64_t key, Words c) {
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const at::Tensor p0 = c[0] * int64_t{0xD2511F53};
    const at::Tensor p1 = c[2] * int64_t{0xCD9E8D57};
    c = {upper(p1) ^ c[1] ^ int64_t{k0}, p1 & kWord, upper(p0) ^ c[3] ^ int64_t{k1},
         p0 & kWord};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

at::Tensor composite_dropout(const at::Tensor& x, const Dropout& draws) {
  const at::Tensor factors = dropout_factors(
      draws, draws.sequences.unsqueeze(1), draws.index.unsqueeze(1),
      at::zeros({1, 1}, draws.index.options()), draws.first_column, x.size(1));
  return (x.to(at::kFloat) * factors).to(x.scalar_type());
}

/// Returns whether the numbers of sequences are two words of 32 bits.
bool in_words(const Dropout& draws) {
  return draws.sequences.scalar_type() == at::kInt && draws.sequences.dim() == 2;
}

/// Returns dropout_factors() where the numbers of sequences are two words.
at::Tensor narrow_factors(const Dropout& draws, const at::Tensor& sequences,
                          const at::Tensor& rows, const at::Tensor& heads, int64_t first,
                          int64_t columns) {
  const auto index = at::TensorOptions().dtype(at::kInt).device(rows.device());
  const auto word = [&](int64_t i) { return sequences.select(-1, i); };
  const narrow::Words words =
      narrow::philox(draws.key, {at::arange(first / 4, (first + columns + 3) / 4, index),
                                 rows, word(0), word(1) * (1 << 16) + heads});
  const at::Tensor drawn =
      at::stack(at::TensorList(words), -1).flatten(-2).narrow(-1, first % 4, columns);
  return narrow::at_least(drawn, draws.threshold()) * draws.scale();
}

struct DropoutTask {
  Dropout draws;
  bool fused;

  at::Tensor run(const at::Tensor& x) const {
    if (!fused || !fused::supports_dropout(x, draws)) return composite_dropout(x, draws);
    const at::Tensor from = x.contiguous();
    at::Tensor y = at::empty_like(from);
    fused::dropout(from, draws, y);
    return y;
  }
};

/// The gradient of the input is the gradient of the result with the same elements
/// dropped.
struct DropoutNode : Function<DropoutNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, DropoutTask task) {
    at::Tensor y = task.run(x);
    save(ctx, std::move(task));
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    return {saved<DropoutTask>(ctx).run(grads[0]), Variable()};
  }
};

}  // namespace

uint32_t Dropout::threshold() const {
  return static_cast<uint32_t>(
      std::min<int64_t>(std::llround(std::ldexp(probability, 32)), kWord));
}

at::Tensor dropout_factors(const Dropout& draws, const at::Tensor& sequences,
                           const at::Tensor& rows, const at::Tensor& heads, int64_t first,
                           int64_t columns) {
  if (in_words(draws)) {
    return narrow_factors(draws, sequences, rows, heads, first, columns);
  }
  const auto index = at::TensorOptions().dtype(at::kLong).device(rows.device());
  const at::Tensor sequence = sequences.to(index);
  const Words words = composite_philox(
      draws.key, {at::arange(first / 4, (first + columns + 3) / 4, index), rows.to(index),
                  sequence & kWord,
                  sequence.bitwise_right_shift(32).mul(1 << 16) | heads.to(index)});
  const at::Tensor drawn =
      at::stack(words, -1).flatten(-2).narrow(-1, first % 4, columns);
  return at::where(drawn >= int64_t{draws.threshold()},
                   at::full({}, draws.scale(), index.dtype(at::kFloat)),
                   at::zeros({}, index.dtype(at::kFloat)));
}

at::Tensor dropout(const at::Tensor& x, const Dropout& draws, bool fused) {
  if (!draws.drops()) return x;
  LH_CHECK(draws.probability < 1.0, "dropout", "probability {}", draws.probability);
  LH_CHECK(x.dim() == 2 && draws.sequences.defined() && draws.index.defined() &&
               (in_words(draws) || draws.sequences.dim() == 1) &&
               draws.sequences.size(0) == x.size(0) &&
               draws.index.sizes() == x.sizes().slice(0, 1),
           "dropout", "{} rows of {} dims, but another number of sequences or indices",
           x.size(0), x.dim());
  DropoutTask task{draws, fused};
  if (!in_words(draws)) task.draws.sequences = draws.sequences.to(at::kLong);
  task.draws.sequences = task.draws.sequences.contiguous();
  task.draws.index = draws.index.to(at::kInt).contiguous();
  return DropoutNode::apply(x, task);
}

}  // namespace longhaul::ops
