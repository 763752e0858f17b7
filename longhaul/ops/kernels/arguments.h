#pragma once

#include <cstdint>
#include <type_traits>

#include "longhaul/families/layers/activation.h"
#include "longhaul/families/layers/rms_form.h"

// The kernels of the operations, each declared once. The struct of a kernel has its raw
// pointers and sizes; cpu.h and cuda.h run it. LH_OPERATOR in the struct declares the
// operator that LibTorch's dispatcher has for the kernel, and makes the struct of the
// operator's tensors. The schema, the call, the registration for each device and the
// tables of loops follow from the struct, from LH_OPERATOR and from the lists at the end.
//
// This header includes nothing that nvcc cannot compile. T is float or Bf16. Sums,
// statistics and exponentials are fp32 inside. Matrices are row-major; a stride counts
// elements. Buffers may be unaligned and must not overlap unless a comment says so. An
// operator checks nothing that its operation has not checked, allocates nothing, and
// takes contiguous tensors unless a comment says otherwise.

namespace longhaul::kernels {

/// A bfloat16 value as it is in memory.
struct Bf16 {
  uint16_t bits;
};

/// A tensor as it lies in memory.
struct Array {
  void* data;  ///< null for an undefined tensor, which has no sizes
  const int64_t *sizes, *strides;
  int64_t dims, count, element_bytes;

  /// Returns the size of a dim; the last dim is -1 too.
  int64_t size(int64_t dim) const { return sizes[dim < 0 ? dims + dim : dim]; }
  int64_t stride(int64_t dim) const { return strides[dim]; }
};
/// A tensor that an operator reads. It becomes a pointer of a kernel.
struct In : Array {
  In(const Array& array) : Array(array) {}
  template <typename T>
  operator const T*() const {
    return static_cast<const T*>(data);
  }
};
/// A tensor that an operator writes, or reads and writes.
struct Out : Array {
  Out(const Array& array) : Array(array) {}
  template <typename T>
  operator T*() const {
    return static_cast<T*>(data);
  }
};

/// Declares the operator "longhaul::NAME" of a kernel, and begins the function of() that
/// makes the kernel of the operator's arguments. Each argument is an In, Out, bool,
/// double, int64_t or an enum. The types and names of the arguments are those of the
/// operator's schema, so each has a name.
#define LH_OPERATOR(Kernel, name, ...)               \
  static constexpr char kName[] = #name;             \
  static constexpr char kArguments[] = #__VA_ARGS__; \
  static Kernel of(__VA_ARGS__)

// ---- RMSNorm

/// Returns the heads of x [T, heads, H], or 1 for [T, H].
inline int64_t heads_of(const Array& x) { return x.dims == 3 ? x.size(1) : 1; }

/// Computes y = weight * round(x * inverse_rms) with inverse_rms = 1 / sqrt(mean(x^2) +
/// eps), the form WeightAfterCast; the other forms round once. The arrays x and y are
/// [tokens, heads, features], and each head is a row of its own. The result y is
/// contiguous; the heads of a token of x follow each other, as in a part of a wider
/// matrix. The weight is [features], inverse_rms [tokens, heads]. With `delta`, x + delta
/// is rounded, written to `sum` and normed; delta and sum are contiguous. The operator
/// takes [T, H], or [T, heads, H] with the last two dims contiguous; delta and sum may be
/// undefined.
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

  LH_OPERATOR(RmsNormForward, rms_norm_forward, In x, In delta, In weight, double eps,
              RmsForm form, Out sum, Out y, Out inverse_rms) {
    return {x,          x.stride(0), weight,      eps,   x.size(0), heads_of(x),
            x.size(-1), y,           inverse_rms, delta, sum,       form};
  }
};

/// Computes dx, the gradient of the norm with respect to its input. The layout of dx is
/// that of x, with a token stride of its own; dx may be dy itself. The gradient dy is
/// contiguous. Adds the sum over rows to dweight [features], unless dweight is null.
/// `dsum`, contiguous, is the gradient that the input of the norm has from its other
/// uses. It is added before dx is rounded.
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

  LH_OPERATOR(RmsNormBackward, rms_norm_backward, In dy, In x, In inverse_rms, In weight,
              RmsForm form, In dsum, Out dx, Out dweight) {
    return {dy,         x,  x.stride(0),  inverse_rms, weight, x.size(0), heads_of(x),
            x.size(-1), dx, dx.stride(0), dweight,     dsum,   form};
  }
};

// ---- Rotary positions

/// Rotates (x[d], x[d + D/2]) by the angle of the token's position: y1 = x1 cos - x2 sin,
/// y2 = x2 cos + x1 sin. `inverse` rotates back, which is the backward. Both x and y are
/// [tokens, heads, head_dim], whose last dim is contiguous and even. Both cos and sin are
/// [positions, D/2]; position_ids [tokens] must lie inside these tables. The result y may
/// be x.
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

  LH_OPERATOR(Rope, rope, In x, In cos, In sin, In positions, bool inverse, Out y) {
    return {x,   x.stride(0), x.stride(1), x.size(0), x.size(1),   x.size(2),  cos,
            sin, positions,   inverse,     y,         y.stride(0), y.stride(1)};
  }
};

// ---- Gated products: silu(x) = x sigmoid(x). GELU is x times the share of the normal
// distribution below x, or the tanh approximation of this product.

/// Returns act(constant), where the constant is the activation as a type.
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

/// Computes y = activation(gate) * up. Both gate and up are [rows, features] with one row
/// stride, so that they may be halves of one matrix; y [rows, features] is contiguous.
/// With `weights` [rows], each row is multiplied by its weight before it is rounded.
template <typename T>
struct GatedProductForward {
  Activation activation;
  const T *gate, *up;
  int64_t row_stride, rows, features;
  T* y;
  const float* weights = nullptr;

  LH_OPERATOR(GatedProductForward, gated_product_forward, In gate, In up, In weights,
              Activation activation, Out y) {
    return {activation, gate, up, gate.stride(0), gate.size(0), gate.size(1), y, weights};
  }
};

/// Computes the gradients of gate and up from dy, which is contiguous. Both dgate and dup
/// have row stride `d_row_stride`; they may be gate and up themselves. With `weights`,
/// `dweights` [rows] becomes their gradient.
template <typename T>
struct GatedProductBackward {
  Activation activation;
  const T *dy, *gate, *up;
  int64_t row_stride, rows, features;
  T *dgate, *dup;
  int64_t d_row_stride;
  const float* weights = nullptr;
  float* dweights = nullptr;

  LH_OPERATOR(GatedProductBackward, gated_product_backward, In dy, In gate, In up,
              In weights, Activation activation, Out dgate, Out dup, Out dweights) {
    return {activation,   dy,           gate,  up,  gate.stride(0),
            gate.size(0), gate.size(1), dgate, dup, dgate.stride(0),
            weights,      dweights};
  }
};

// ---- Rows of tokens on their way to experts

/// Computes y[r] = x[row[r]] for y [rows, features]. The operator takes x and y with a
/// contiguous last dim.
template <typename T>
struct GatherRows {
  const T* x;
  int64_t x_stride;
  const int64_t* row;
  int64_t rows, features;
  T* y;
  int64_t y_stride;

  LH_OPERATOR(GatherRows, gather_rows, In x, In row, Out y) {
    return {x, x.stride(0), row, y.size(0), y.size(1), y, y.stride(0)};
  }
};

/// Computes y[t] as the sum over i of x[place[t][i]], in ascending i, rounded once. The
/// shapes are y [tokens, features] and place [tokens, each]. The operator takes x with a
/// contiguous last dim.
template <typename T>
struct SumRows {
  const T* x;
  int64_t x_stride;
  const int64_t* place;
  int64_t tokens, each, features;
  T* y;

  LH_OPERATOR(SumRows, sum_rows, In x, In place, Out y) {
    return {x, x.stride(0), place, y.size(0), place.size(1), y.size(1), y};
  }
};

/// Computes dy^T x over the rows of each expert, for dy [R, M] and x [R, N], whose rows
/// are dy_stride and x_stride apart. The rows of expert e are [offsets[e], offsets[e +
/// 1]), and there may be none. The results [M, N] lie `stride` apart. They go to y,
/// rounded once, or to `wide` in fp32; the other one is null. With `add` they are added
/// to the previous content. Otherwise experts without rows get 0. The operator takes dy
/// and x with a contiguous last dim, and grad [E, M, N] with contiguous matrices, which
/// is fp32 or has the dtype of x. A CPU has the kernel for Bf16 alone (fused/fused.cpp).
template <typename T>
struct GroupedGradient {
  const T* dy;
  int64_t dy_stride;
  const T* x;
  int64_t x_stride;
  const int32_t* offsets;
  int64_t experts, M, N;
  T* y;
  float* wide;
  int64_t stride;
  bool add;

  LH_OPERATOR(GroupedGradient, grouped_gradient, In dy, In x, In offsets, bool add,
              Out grad) {
    const bool wide = grad.element_bytes == sizeof(float);
    return {.dy = dy,
            .dy_stride = dy.stride(0),
            .x = x,
            .x_stride = x.stride(0),
            .offsets = offsets,
            .experts = grad.size(0),
            .M = dy.size(1),
            .N = x.size(1),
            .y = static_cast<T*>(wide ? nullptr : grad.data),
            .wide = static_cast<float*>(wide ? grad.data : nullptr),
            .stride = grad.stride(0),
            .add = add};
  }
};

// ---- Dropout

/// An element is kept iff its draw is at least `threshold`, and then multiplied by
/// `scale`. Draws are Philox4x32-10 of `key` at the counter (column / 4, index of the row
/// in its sequence, lower word of the sequence's number, its upper word * 2^16 + head),
/// word column % 4. Numbers of sequences are below 2^48, of heads below 2^16.
struct Draws {
  uint64_t key;
  uint32_t threshold;
  float scale;
};

/// Computes y from x by dropping elements, by the draws of head 0. Both x and y are
/// [rows, columns]; sequences and index are [rows]. The result y may be x.
template <typename T>
struct Dropout {
  const T* x;
  const int64_t* sequences;
  const int32_t* index;
  int64_t rows, columns;
  Draws draws;
  T* y;
  uint32_t first_group = 0;  ///< a quarter of the number of column 0
};

// ---- Attention

/// Elements from a sequence, token or head to the next one; the head dim is contiguous.
struct AttentionStrides {
  int64_t batch;
  int64_t token;
  int64_t head;
};

/// Dropout of probabilities, whose rows are queries and columns are keys.
struct AttentionDropout {
  Draws draws;
  const int64_t* sequences = nullptr;  ///< [batch]; null if nothing is dropped
  int64_t first_head = 0;              ///< number of query head 0
};

/// Query i of sequence b sees the keys j < keys with
/// document_start[b][i] - first_key <= j <= query_offset + i, or, with a document_end,
/// j < document_end[b][i] - first_key. A query that sees no key gets the result 0.
/// Query heads h * G ... h * G + G - 1 share key head h, G = query_heads / key_heads.
struct AttentionShape {
  int64_t batch;
  int64_t queries;      ///< S
  int64_t keys;         ///< keys past query_offset + S are read only with a document_end
  int64_t query_heads;  ///< a multiple of key_heads
  int64_t key_heads;
  int64_t head_dim;  ///< a multiple of 8, 8 to 256
  /// The position of query 0 among the keys, which is the number of cached keys. Every
  /// query may see all keys if it is at least `keys`; the first queries see none if it is
  /// negative.
  int64_t query_offset;
  float scale;  ///< factor of the scores, above 0
  /// The first key of each query's document, [batch, queries]; null if there is no limit.
  const int32_t* document_start;
  int64_t first_key = 0;  ///< the number that document_start has for key 0
  /// The largest number of keys that a query sees, its own being the last. The default is
  /// longer than any sequence.
  int64_t window = int64_t{1} << 62;
  /// One past the last key of each query's document, [batch, queries]; null for causal
  /// attention. There must be no window then.
  const int32_t* document_end = nullptr;
  /// The draws count from the start of the sequence: key 0 has index first_key, and query
  /// 0 has index query_offset + first_key.
  AttentionDropout dropout = {};
};

/// Returns the strides of a contiguous [batch, tokens, heads, head_dim].
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

/// Whether an attention takes all keys, or takes a part of the keys and merges its
/// results into those of other parts.
enum class Results { Replace, GoOn };

template <typename T, Results kResults>
using AttentionResult =
    AttentionOutput<std::conditional_t<kResults == Results::Replace, T, float>>;

/// Computes out [B, S, Hq, D] and lse [B, Hq, S], which is contiguous. A value of lse is
/// the natural log of the sum of exp(scores), dropped probabilities included, and minus
/// infinity for a query that sees no key. With GoOn, out and lse hold the result for the
/// earlier parts (0 and minus infinity if there are none), and afterwards the softmax
/// over these keys too.
template <typename T, Results kResults = Results::Replace>
struct AttentionForward {
  AttentionShape shape;
  AttentionInput<T> q, k, v;
  AttentionResult<T, kResults> out;
  float* lse;
};

/// Overwrites dq [B, S, Hq, D] and dk and dv [B, K, Hkv, D]; keys that no query sees get
/// 0. With GoOn, the keys are a part, and out and lse are those over all parts. The
/// kernel then adds to dq, and to dk and dv of this part.
template <typename T, Results kResults = Results::Replace>
struct AttentionBackward {
  AttentionShape shape;
  AttentionInput<T> q, k, v, out, dout;
  const float* lse;
  AttentionResult<T, kResults> dq, dk, dv;
};

// ---- Loss head

/// Computes statistics of a contiguous chunk of logits [rows, vocabulary]. Each of
/// targets [rows] is an index below `vocabulary`, or a negative or larger value if the
/// target is not in this chunk. The results for each row are the maximum, the sum of
/// exp(logit - maximum), and the logit of the target, or 0 if the target is not here.
/// Ranks with parts of the vocabulary combine these statistics.
template <typename T>
struct CrossEntropyStatistics {
  const T* logits;
  const int64_t* targets;
  int64_t rows, vocabulary;
  float *maximum, *sum_exp, *picked;

  LH_OPERATOR(CrossEntropyStatistics, cross_entropy_statistics, In logits, In targets,
              Out maximum, Out sum_exp, Out picked) {
    return {logits, targets, logits.size(0), logits.size(1), maximum, sum_exp, picked};
  }
};

/// Replaces logits by row_scale * (softmax * (1 + 2 z_loss lse) - onehot(target)), in
/// place. The log of the sum of exp over the whole vocabulary is lse [rows]; row_scale
/// [rows] is 0 for rows without a target.
template <typename T>
struct CrossEntropyGradient {
  T* logits;
  const int64_t* targets;
  int64_t rows, vocabulary;
  const float *lse, *row_scale;
  double z_loss;

  LH_OPERATOR(CrossEntropyGradient, cross_entropy_gradient, Out logits, In targets,
              In lse, In row_scale, double z_loss) {
    return {logits, targets, logits.size(0), logits.size(1), lse, row_scale, z_loss};
  }
};

/// Does the work of CrossEntropyStatistics and CrossEntropyGradient for a whole
/// vocabulary, row by row while a row is in cache. The results cross_entropy = lse -
/// picked and squared_lse = lse^2, both [rows], are 0 if the target is negative. With
/// `want_gradient` the logits become the gradient of scale * (cross_entropy + z_loss *
/// squared_lse), 0 for rows without a target. Otherwise the logits stay as they are.
template <typename T>
struct CrossEntropy {
  T* logits;
  const int64_t* targets;
  int64_t rows, vocabulary;
  double scale, z_loss;
  bool want_gradient;
  float *cross_entropy, *squared_lse;

  LH_OPERATOR(CrossEntropy, cross_entropy, Out logits, In targets, double scale,
              double z_loss, bool want_gradient, Out cross_entropy, Out squared_lse) {
    return {logits, targets,       logits.size(0), logits.size(1), scale,
            z_loss, want_gradient, cross_entropy,  squared_lse};
  }
};

// ---- Kernels that exist for GPUs only. On a CPU LibTorch's GELU takes one pass, its
// index_add_ gives the same bits in every run, and the attention merges parts of the keys
// itself.

/// Computes gradient[rows[i]] += dy[order[i]] for ascending i, so that the tokens of a
/// row are added one after another. The shapes are dy [tokens, features], order [tokens]
/// and gradient [table_rows, features]. The array rows [tokens] ascends; rows outside of
/// [0, table_rows) are left out. A block of threads adds the tokens of a row, so that the
/// time is that of the most frequent token.
template <typename T>
struct EmbeddingGradient {
  const T* dy;
  const int64_t *rows, *order;
  int64_t tokens, features, table_rows;
  float* gradient;

  LH_OPERATOR(EmbeddingGradient, embedding_gradient, In dy, In rows, In order, Out grad) {
    return {dy, rows, order, dy.size(0), dy.size(1), grad.size(0), grad};
  }
};

/// Computes y = gelu(x), or the tanh form. The result y may be x.
template <typename T>
struct GeluForward {
  const T* x;
  int64_t count;
  bool tanh;
  T* y;

  LH_OPERATOR(GeluForward, gelu_forward, In x, bool tanh, Out y) {
    return {x, x.count, tanh, y};
  }
};

/// Computes dx = dy times the slope of gelu at x. The result dx may be dy.
template <typename T>
struct GeluBackward {
  const T *dy, *x;
  int64_t count;
  bool tanh;
  T* dx;

  LH_OPERATOR(GeluBackward, gelu_backward, In dy, In x, bool tanh, Out dx) {
    return {dy, x, x.count, tanh, dx};
  }
};

/// Merges a part of the keys into the result of an attention: with now = ln(e^lse +
/// e^part_lse), out = out e^(lse - now) + part e^(part_lse - now) and lse = now. A row
/// that has seen no key so far is 0. The shapes are part [sequences, queries, heads, dim]
/// and part_lse [sequences, heads, queries], both contiguous. The dims of out are those
/// of part, contiguous in a sequence; lse has strides.
template <typename T>
struct MergeAttention {
  const T* part;
  const float* part_lse;
  int64_t sequences, queries, heads, head_dim;
  float* out;
  int64_t out_sequence_stride;
  float* lse;
  int64_t lse_sequence_stride, lse_head_stride;

  LH_OPERATOR(MergeAttention, merge_attention, In part, In part_lse, Out merged,
              Out merged_lse) {
    return {part,
            part_lse,
            part.size(0),
            part.size(1),
            part.size(2),
            part.size(3),
            merged,
            merged.stride(0),
            merged_lse,
            merged_lse.stride(0),
            merged_lse.stride(1)};
  }
};

// ---- The lists of kernels

template <template <typename> class... Kernels>
struct KernelList {};

/// The kernels that CPUs and GPUs have.
using Kernels = KernelList<RmsNormForward, RmsNormBackward, Rope, GatedProductForward,
                           GatedProductBackward, GatherRows, SumRows, CrossEntropy,
                           CrossEntropyStatistics, CrossEntropyGradient>;
/// The kernels that GPUs alone have for all types of elements.
using KernelsOfGpus = KernelList<GroupedGradient, GeluForward, GeluBackward,
                                 EmbeddingGradient, MergeAttention>;

}  // namespace longhaul::kernels
