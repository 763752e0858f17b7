#pragma once

#include <cstdint>
#include <type_traits>

#include "longhaul/families/activation.h"
#include "longhaul/families/rms_form.h"

// What the kernels of the operations take: raw pointers and sizes, one struct for each
// kernel; cpu.h and cuda.h run them. This header brings nothing that nvcc would not
// compile. T is float or Bf16. Sums, statistics and exponentials are fp32 inside.
// Matrices are row-major; a stride counts elements. Buffers may be unaligned and must not
// overlap unless a comment says so.

namespace longhaul::kernels {

/// One bfloat16 value, as it lies in memory.
struct Bf16 {
  uint16_t bits;
};

// ---- RMSNorm
// ---------------------------------------------------------------------------

/// y = weight * round(x * inverse_rms), inverse_rms = 1 / sqrt(mean(x^2) + eps), or as
/// another form has it, which rounds once.
/// x, y [tokens, heads, features], each head a row of its own; y is contiguous, the heads
/// of a token of x follow each other (as part of a wider matrix has them); weight
/// [features]; inverse_rms [tokens, heads]. With `delta`, contiguous as y, x + delta is
/// normed: rounded into `sum`, contiguous too.
template <typename T>
struct RmsNormForward {
  const T* x;
  int64_t x_token_stride;
  const T* weight;
  double eps;
  int64_t tokens, heads, features;
  T* y;
  float* inverse_rms;
  const T* delta = nullptr;
  T* sum = nullptr;
  RmsForm form = RmsForm::WeightAfterCast;
};

/// dx = gradient of the norm with respect to its input, which lies like x, with a stride
/// of its own. dy is contiguous. dweight [features] += sum over rows, null: not wanted.
/// dx may be dy itself. `dsum`, contiguous, is added before dx is rounded: what goes on
/// beside the norm has it for its gradient.
template <typename T>
struct RmsNormBackward {
  const T *dy, *x;
  int64_t x_token_stride;
  const float* inverse_rms;
  const T* weight;
  int64_t tokens, heads, features;
  T* dx;
  int64_t dx_token_stride;
  float* dweight;
  const T* dsum = nullptr;
  RmsForm form = RmsForm::WeightAfterCast;
};

// ---- Rotary positions
// ------------------------------------------------------------------

/// Rotates (x[d], x[d + D/2]) by the angle of the token's position, the half-split form:
/// y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin. `inverse` rotates back, which is the
/// backward. x, y [tokens, heads, head_dim], the last dim contiguous and even; cos, sin
/// [positions, D/2]; position_ids [tokens], inside the tables. y may be x.
template <typename T>
struct Rope {
  const T* x;
  int64_t x_token_stride, x_head_stride;
  int64_t tokens, heads, head_dim;
  const float *cos, *sin;
  const int32_t* position_ids;
  bool inverse;
  T* y;
  int64_t y_token_stride, y_head_stride;
};

// ---- Gated products: silu(x) = x sigmoid(x); GELU is x times the normal distribution's
// share below it, or that by its tanh form.

/// Returns act(constant) of the activation.
template <typename Act>
constexpr auto with_activation(Activation activation, const Act& act) {
  switch (activation) {
    case Activation::GeluTanh:
      return act(std::integral_constant<Activation, Activation::GeluTanh>());
    case Activation::GeluExact:
      return act(std::integral_constant<Activation, Activation::GeluExact>());
    default:
      return act(std::integral_constant<Activation, Activation::Silu>());
  }
}

/// y = activation(gate) * up. gate and up [rows, features] with one row stride (so that
/// they may be halves of one matrix); y [rows, features] contiguous.
template <typename T>
struct GatedProductForward {
  Activation activation;
  const T *gate, *up;
  int64_t row_stride, rows, features;
  T* y;
};

/// dgate and dup have row stride `d_row_stride`; they may be gate and up themselves.
template <typename T>
struct GatedProductBackward {
  Activation activation;
  const T *dy, *gate, *up;
  int64_t row_stride, rows, features;
  T *dgate, *dup;
  int64_t d_row_stride;
};

// ---- Dropout
// ---------------------------------------------------------------------------

/// An element is kept iff its draw is at least `threshold`, and then multiplied by
/// `scale`. Draws are Philox4x32-10 of `key` at the counter (column / 4, index of the row
/// in its sequence, lower word of the sequence's number, its upper word * 2^16 + head),
/// word column % 4. Numbers of sequences are below 2^48, of heads below 2^16.
struct Draws {
  uint64_t key;
  uint32_t threshold;
  float scale;
};

/// y = x, of which some elements are dropped; head 0. x, y [rows, columns]; sequences and
/// index [rows]. y may be x.
template <typename T>
struct Dropout {
  const T* x;
  const int64_t* sequences;
  const int32_t* index;
  int64_t rows, columns;
  Draws draws;
  T* y;
};

// ---- Attention
// -------------------------------------------------------------------------

/// Elements from one sequence, token and head to the next; head dim contiguous.
struct AttentionStrides {
  int64_t batch;
  int64_t token;
  int64_t head;
};

/// Dropout of probabilities: rows are queries, columns are keys.
struct AttentionDropout {
  Draws draws;
  const int64_t* sequences = nullptr;  ///< [batch]; null: nothing is dropped
  int64_t first_head = 0;              ///< number of query head 0
};

/// Query i of sequence b sees the keys j < keys with
/// document_start[b][i] - first_key <= j <= query_offset + i, or, where there is a
/// document_end, j < document_end[b][i] - first_key; a query that sees none gets the
/// result 0.
/// Query heads h * G ... h * G + G - 1 share key head h, G = query_heads / key_heads.
struct AttentionShape {
  int64_t batch;
  int64_t queries;      ///< S
  int64_t keys;         ///< those past query_offset + S are read only with a document_end
  int64_t query_heads;  ///< a multiple of key_heads
  int64_t key_heads;
  int64_t head_dim;  ///< a multiple of 8, 8 to 256
  /// Position of query 0 among the keys: how many are cached. From `keys` on, every
  /// query may see all; negative: the first queries see none.
  int64_t query_offset;
  float scale;  ///< of the scores; above 0
  /// [batch, queries]; null: no limit.
  const int32_t* document_start;
  int64_t first_key = 0;  ///< the number that document_start has for key 0
  /// Keys that a query sees at most, its own the last; without a limit more than any
  /// sequence has.
  int64_t window = int64_t{1} << 62;
  /// [batch, queries]; null: causal. Without a window.
  const int32_t* document_end = nullptr;
  /// Key 0 has index first_key of its sequence, query 0 has query_offset + first_key.
  AttentionDropout dropout = {};
};

/// Strides of a contiguous [batch, tokens, heads, head_dim].
inline AttentionStrides attention_strides(int64_t tokens, int64_t heads,
                                          int64_t head_dim) {
  return {tokens * heads * head_dim, heads * head_dim, head_dim};
}

template <typename T>
struct AttentionInput {
  const T* data;
  AttentionStrides strides;
};

template <typename T>
struct AttentionOutput {
  T* data;
  AttentionStrides strides;
};

/// Whether keys come all at once, or in parts whose results go on from what is there.
enum class Results { Replace, GoOn };

template <typename T, Results kResults>
using AttentionResult =
    AttentionOutput<std::conditional_t<kResults == Results::Replace, T, float>>;

/// out [B, S, Hq, D]; lse [B, Hq, S] contiguous: natural log of the sum of exp(scores),
/// those of dropped probabilities too, minus infinity for a query that sees no key. GoOn:
/// out and lse hold the result for the parts before (for none: 0 and minus infinity) and
/// leave with these keys taken in, as one softmax over all.
template <typename T, Results kResults = Results::Replace>
struct AttentionForward {
  AttentionShape shape;
  AttentionInput<T> q, k, v;
  AttentionResult<T, kResults> out;
  float* lse;
};

/// dq [B, S, Hq, D], dk, dv [B, K, Hkv, D] are overwritten; keys that no query sees get
/// 0. GoOn: for one part of the keys; out and lse are those over all parts. Adds to dq,
/// and to dk and dv of this part.
template <typename T, Results kResults = Results::Replace>
struct AttentionBackward {
  AttentionShape shape;
  AttentionInput<T> q, k, v, out, dout;
  const float* lse;
  AttentionResult<T, kResults> dq, dk, dv;
};

// ---- Loss head
// -------------------------------------------------------------------------

/// A chunk of logits [rows, vocabulary], contiguous. targets [rows]: an index below
/// `vocabulary`, or a negative or larger value where the target is not in this chunk.
/// Per row: the maximum, sum of exp(logit - maximum), and the target's logit (0 where it
/// is not here): what a vocabulary-parallel form combines.
template <typename T>
struct CrossEntropyStatistics {
  const T* logits;
  const int64_t* targets;
  int64_t rows, vocabulary;
  float *maximum, *sum_exp, *picked;
};

/// logits = row_scale * (softmax * (1 + 2 z_loss lse) - onehot(target)), in place.
/// lse [rows]: the log of the sum of exp over the whole vocabulary; row_scale [rows], 0
/// for rows without a target.
template <typename T>
struct CrossEntropyGradient {
  T* logits;
  const int64_t* targets;
  int64_t rows, vocabulary;
  const float *lse, *row_scale;
  double z_loss;
};

/// Both of the above, row by row while a row is in cache, for a whole vocabulary.
/// cross_entropy = lse - picked and squared_lse = lse^2, [rows], both 0 where the target
/// is negative. With `want_gradient` logits become the gradient of scale * (cross_entropy
/// + z_loss * squared_lse), 0 for rows without a target; else they stay as they are.
template <typename T>
struct CrossEntropy {
  T* logits;
  const int64_t* targets;
  int64_t rows, vocabulary;
  double scale, z_loss;
  bool want_gradient;
  float *cross_entropy, *squared_lse;
};

// ---- Kernels that a CPU has no need for

/// gradient[rows[i]] += dy[order[i]] for ascending i: each row's tokens one after
/// another. dy [tokens, features]; rows [tokens] ascending, those outside of [0,
/// table_rows) are left out; order [tokens]; gradient [table_rows, features]. A block
/// walks the tokens of a row, so that a token that fills a batch takes the longest.
template <typename T>
struct EmbeddingGradient {
  const T* dy;
  const int64_t *rows, *order;
  int64_t tokens, features, table_rows;
  float* gradient;
};

/// y = gelu(x): x times the normal distribution's share below it, or that by its tanh
/// form. y may be x.
template <typename T>
struct GeluForward {
  const T* x;
  int64_t count;
  bool tanh;
  T* y;
};

/// dx may be dy.
template <typename T>
struct GeluBackward {
  const T *dy, *x;
  int64_t count;
  bool tanh;
  T* dx;
};

/// A part of the keys taken into an attention's result, a row by its log-sum-exp: with
/// now = ln(e^lse + e^part_lse), out = out e^(lse - now) + part e^(part_lse - now) and
/// lse = now; a row that has seen no key so far is 0. part [sequences, queries, heads,
/// dim] and out in the same order, contiguous in a sequence; part_lse [sequences, heads,
/// queries] contiguous, lse with strides.
template <typename T>
struct MergeAttention {
  const T* part;
  const float* part_lse;
  int64_t sequences, queries, heads, head_dim;
  float* out;
  int64_t out_sequence_stride;
  float* lse;
  int64_t lse_sequence_stride, lse_head_stride;
};

}  // namespace longhaul::kernels
