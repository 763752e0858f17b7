#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

// The operations as loops over raw pointers for a CPU: no Torch, no allocation of
// results. T is float or Bf16. Sums, statistics and exponentials are fp32 inside.
// Matrices are row-major; a stride counts elements. Results depend on the instruction set
// but neither on the number of OpenMP threads nor on the run. Buffers may be unaligned
// and must not overlap unless said. Every function may be called from any thread; it
// forks OpenMP threads.

namespace longhaul::kernels {

/// One bfloat16 value, as it lies in memory.
struct Bf16 {
  uint16_t bits;
};

/// Instruction sets, weakest first. A CPU that has one has all before it.
enum class Isa { Avx2, Avx512, Avx512Bf16 };

/// The strongest set of this CPU.
Isa best_isa();
const char* isa_name(Isa isa);

/// "GenuineIntel family 6 model 143, AMX": what MKL and oneDNN choose their code by,
/// besides the instruction set.
std::string cpu_name();

// ---- RMSNorm
// ---------------------------------------------------------------------------

/// h = x + residual (rounded to T; only if `residual` is given, else h = x);
/// y = weight * round(h * inverse_rms), inverse_rms = 1 / sqrt(mean(h^2) + eps).
/// x, residual, h, y [rows, features]; weight [features]; inverse_rms [rows].
/// h may be x or residual itself; it is not written without `residual` and may be null.
template <typename T>
void rms_norm_forward(const T* x, const T* residual, const T* weight, double eps,
                      int64_t rows, int64_t features, T* h, T* y, float* inverse_rms,
                      Isa isa = best_isa());

/// dx = gradient of the norm with respect to its input `x` (the h of the forward)
/// + dresidual (null: none). dweight [features] += sum over rows, null: not wanted.
/// dx may be dy or dresidual itself.
template <typename T>
void rms_norm_backward(const T* dy, const T* x, const float* inverse_rms, const T* weight,
                       const T* dresidual, int64_t rows, int64_t features, T* dx,
                       float* dweight, Isa isa = best_isa());

// ---- Rotary positions
// ------------------------------------------------------------------

/// [tokens, heads, head_dim], the last dim contiguous.
struct RopeShape {
  int64_t tokens;
  int64_t heads;
  int64_t head_dim;  ///< even
};

/// Rotates (x[d], x[d + D/2]) by the angle of the token's position, the half-split form:
/// y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin. `inverse` rotates back, which is the
/// backward. cos, sin [positions, D/2] fp32; position_ids [tokens], inside the tables. y
/// may be x.
template <typename T>
void rope(const T* x, int64_t x_token_stride, int64_t x_head_stride,
          const RopeShape& shape, const float* cos, const float* sin,
          const int32_t* position_ids, bool inverse, T* y, int64_t y_token_stride,
          int64_t y_head_stride, Isa isa = best_isa());

// ---- SwiGLU
// ----------------------------------------------------------------------------

/// y = silu(gate) * up. gate and up [rows, features] with one row stride (so that they
/// may be halves of one matrix); y [rows, features] contiguous.
template <typename T>
void swiglu_forward(const T* gate, const T* up, int64_t row_stride, int64_t rows,
                    int64_t features, T* y, Isa isa = best_isa());

/// dgate and dup have row stride `d_row_stride`; they may be gate and up themselves.
template <typename T>
void swiglu_backward(const T* dy, const T* gate, const T* up, int64_t row_stride,
                     int64_t rows, int64_t features, T* dgate, T* dup,
                     int64_t d_row_stride, Isa isa = best_isa());

// ---- Attention
// -------------------------------------------------------------------------

/// Elements from one sequence, token and head to the next; head dim contiguous.
struct AttentionStrides {
  int64_t batch;
  int64_t token;
  int64_t head;
};

/// Query i of sequence b sees the keys j < keys with
/// document_start[b][i] - first_key <= j <= query_offset + i; a query that sees none gets
/// the result 0.
/// Query heads h * G ... h * G + G - 1 share key head h, G = query_heads / key_heads.
struct AttentionShape {
  int64_t batch;
  int64_t queries;      ///< S
  int64_t keys;         ///< those past query_offset + S are never read
  int64_t query_heads;  ///< a multiple of key_heads
  int64_t key_heads;
  int64_t head_dim;  ///< a multiple of 8, 8 to 256
  /// Position of query 0 among the keys: how many are cached. From `keys` on, every
  /// query may see all; negative: the first queries see none.
  int64_t query_offset;
  float scale;  ///< of the scores, 1 / sqrt(head_dim)
  /// [batch, queries]; null: no limit.
  const int32_t* document_start;
  int64_t first_key = 0;  ///< the number that document_start has for key 0
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

/// Head dims that the two functions below take.
bool attention_supported(int64_t head_dim);

/// out [B, S, Hq, D]; lse [B, Hq, S] contiguous: natural log of the sum of exp(scores),
/// minus infinity for a query that sees no key.
template <typename T>
void attention_forward(const AttentionShape& shape, const AttentionInput<T>& q,
                       const AttentionInput<T>& k, const AttentionInput<T>& v,
                       const AttentionOutput<T>& out, float* lse, Isa isa = best_isa());

/// dq [B, S, Hq, D], dk, dv [B, K, Hkv, D] are overwritten; keys that no query sees get
/// 0.
template <typename T>
void attention_backward(const AttentionShape& shape, const AttentionInput<T>& q,
                        const AttentionInput<T>& k, const AttentionInput<T>& v,
                        const AttentionInput<T>& out, const AttentionInput<T>& dout,
                        const float* lse, const AttentionOutput<T>& dq,
                        const AttentionOutput<T>& dk, const AttentionOutput<T>& dv,
                        Isa isa = best_isa());

/// The forward over keys that come in parts: out and lse hold the result for the parts
/// before (for none: 0 and minus infinity) and leave with these keys taken in, as one
/// softmax over all.
template <typename T>
void attention_forward_part(const AttentionShape& shape, const AttentionInput<T>& q,
                            const AttentionInput<T>& k, const AttentionInput<T>& v,
                            const AttentionOutput<float>& out, float* lse,
                            Isa isa = best_isa());

/// The backward for one part of the keys; out and lse are those over all parts. Adds to
/// dq, and to dk and dv of this part.
template <typename T>
void attention_backward_part(const AttentionShape& shape, const AttentionInput<T>& q,
                             const AttentionInput<T>& k, const AttentionInput<T>& v,
                             const AttentionInput<T>& out, const AttentionInput<T>& dout,
                             const float* lse, const AttentionOutput<float>& dq,
                             const AttentionOutput<float>& dk,
                             const AttentionOutput<float>& dv, Isa isa = best_isa());

// ---- Loss head
// -------------------------------------------------------------------------

/// A chunk of logits [rows, vocabulary], contiguous. targets [rows]: an index below
/// `vocabulary`, or a negative or larger value where the target is not in this chunk.
/// Per row: the maximum, sum of exp(logit - maximum), and the target's logit (0 where it
/// is not here): what a vocabulary-parallel form combines.
template <typename T>
void cross_entropy_statistics(const T* logits, const int64_t* targets, int64_t rows,
                              int64_t vocabulary, float* maximum, float* sum_exp,
                              float* picked, Isa isa = best_isa());

/// logits = row_scale * (softmax * (1 + 2 z_loss lse) - onehot(target)), in place.
/// lse [rows]: the log of the sum of exp over the whole vocabulary; row_scale [rows], 0
/// for rows without a target.
template <typename T>
void cross_entropy_gradient(T* logits, const int64_t* targets, int64_t rows,
                            int64_t vocabulary, const float* lse, const float* row_scale,
                            double z_loss, Isa isa = best_isa());

/// Both of the above, row by row while a row is in cache, for a whole vocabulary.
/// cross_entropy = lse - picked and squared_lse = lse^2, [rows], both 0 where the target
/// is negative. With `want_gradient` logits become the gradient of scale * (cross_entropy
/// + z_loss * squared_lse), 0 for rows without a target; else they stay as they are.
template <typename T>
void cross_entropy(T* logits, const int64_t* targets, int64_t rows, int64_t vocabulary,
                   double scale, double z_loss, bool want_gradient, float* cross_entropy,
                   float* squared_lse, Isa isa = best_isa());

// ---- Buffers
// ---------------------------------------------------------------------------

/// sum[i] += x[i].
template <typename T>
void accumulate(float* sum, const T* x, int64_t count, Isa isa = best_isa());
/// Round to nearest even, NaN kept quiet; the same bits with every instruction set.
void convert(const float* x, Bf16* y, int64_t count, Isa isa = best_isa());
void convert(const Bf16* x, float* y, int64_t count, Isa isa = best_isa());

// ---- Weight gradients
// ------------------------------------------------------------------

/// Whether the function below beats a library's product plus an accumulation here: it
/// needs AVX512_BF16, and no AMX (where the library's product is far faster).
bool weight_gradient_available();

/// grad [N, K] += dy [T, N]^T x [T, K]: bf16 products, fp32 sums, no rounding in between.
/// dy and x have row strides; grad is contiguous. Needs AVX512_BF16.
void accumulate_weight_gradient(const Bf16* dy, int64_t dy_stride, const Bf16* x,
                                int64_t x_stride, int64_t T, int64_t N, int64_t K,
                                float* grad);

}  // namespace longhaul::kernels
