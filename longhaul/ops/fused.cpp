#include "longhaul/ops/fused.h"

#include <cmath>

#include "longhaul/ops/fused_cuda.h"
#include "longhaul/ops/kernels/cpu.h"

namespace longhaul::ops::fused {
namespace {

using kernels::Bf16;
using kernels::Results;

/// Memory of a tensor as the kernels' element type; null for an undefined one.
template <typename T>
T* pointer(const at::Tensor& x) {
  return x.defined() ? static_cast<T*>(x.data_ptr()) : nullptr;
}

/// Calls `run` with a value of the element type.
template <typename Run>
void with_type(const at::Tensor& x, const Run& run) {
  if (x.scalar_type() == at::kFloat) {
    run(float{});
  } else {
    run(Bf16{});
  }
}

/// Runs the kernel that `make` makes for the element type, where `x` lies.
template <typename Make>
void run(const at::Tensor& x, const Make& make) {
  with_type(x, [&](auto type) {
    if (x.is_cuda()) {
      cuda::run(make(type), x.device());
    } else {
      kernels::run(make(type));
    }
  });
}

kernels::AttentionStrides strides(const at::Tensor& x) {
  return {x.stride(0), x.stride(1), x.stride(2)};
}

template <typename T>
kernels::AttentionInput<T> input(const at::Tensor& x) {
  return {pointer<T>(x), strides(x)};
}

template <typename T>
kernels::AttentionOutput<T> output(const at::Tensor& x) {
  return {pointer<T>(x), strides(x)};
}

kernels::Draws draws_of(const Dropout& dropout) {
  return {dropout.key, dropout.threshold(), dropout.scale()};
}

kernels::AttentionDropout attention_dropout(const Dropout& dropout) {
  if (!dropout.drops()) return {};
  return {draws_of(dropout), pointer<int64_t>(dropout.sequences), dropout.first_head};
}

kernels::AttentionShape attention_shape(const at::Tensor& q, const at::Tensor& k,
                                        const AttentionMask& mask, int64_t query_offset,
                                        int64_t first_key) {
  return {q.size(0),
          q.size(1),
          k.size(1),
          q.size(2),
          k.size(2),
          q.size(3),
          query_offset,
          1.0F / std::sqrt(static_cast<float>(q.size(3))),
          pointer<int32_t>(mask.document_start),
          first_key,
          mask.window,
          pointer<int32_t>(mask.document_end),
          attention_dropout(mask.dropout)};
}

/// All keys at once, the cached ones first.
kernels::AttentionShape attention_shape(const at::Tensor& q, const at::Tensor& k,
                                        const AttentionMask& mask) {
  return attention_shape(q, k, mask, k.size(1) - q.size(1), 0);
}

kernels::AttentionShape attention_shape(const AttentionPart& part) {
  return attention_shape(part.q, part.k, part.mask, part.query_begin - part.key_begin,
                         part.key_begin);
}

}  // namespace

bool supports(const at::Tensor& x) {
  if (x.is_cuda()) return cuda::supports(x);
  return x.is_cpu() &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

std::string device_name(at::Device device) {
  if (device.is_cuda()) return cuda::device_name(device);
  return device.is_cpu() ? "cpu" : device.str();
}

bool supports_gradient(const at::Tensor& grad) {
  return !grad.defined() || grad.scalar_type() == at::kFloat;
}

bool supports_attention(const at::Tensor& q, int64_t head_dim) {
  return q.is_cpu() && supports(q) && kernels::attention_supported(head_dim);
}

void rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps,
                      at::Tensor& y, at::Tensor& inverse_rms) {
  run(x, [&]<typename T>(T) {
    return kernels::RmsNormForward<T>{
        pointer<T>(x), pointer<T>(weight),         eps, x.size(0), x.size(1),
        pointer<T>(y), pointer<float>(inverse_rms)};
  });
}

void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                       const at::Tensor& inverse_rms, const at::Tensor& weight,
                       at::Tensor& dx, const at::Tensor& dweight) {
  run(x, [&]<typename T>(T) {
    return kernels::RmsNormBackward<T>{pointer<T>(dy),
                                       pointer<T>(x),
                                       pointer<float>(inverse_rms),
                                       pointer<T>(weight),
                                       x.size(0),
                                       x.size(1),
                                       pointer<T>(dx),
                                       pointer<float>(dweight)};
  });
}

void rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
          const at::Tensor& positions, bool inverse, at::Tensor& y) {
  run(x, [&]<typename T>(T) {
    return kernels::Rope<T>{pointer<T>(x),
                            x.stride(0),
                            x.stride(1),
                            x.size(0),
                            x.size(1),
                            x.size(2),
                            pointer<float>(cos),
                            pointer<float>(sin),
                            pointer<int32_t>(positions),
                            inverse,
                            pointer<T>(y),
                            y.stride(0),
                            y.stride(1)};
  });
}

void swiglu_forward(const at::Tensor& gate, const at::Tensor& up, at::Tensor& y) {
  run(gate, [&]<typename T>(T) {
    return kernels::SwigluForward<T>{pointer<T>(gate), pointer<T>(up), gate.stride(0),
                                     gate.size(0),     gate.size(1),   pointer<T>(y)};
  });
}

void swiglu_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up,
                     at::Tensor& dgate, at::Tensor& dup) {
  run(gate, [&]<typename T>(T) {
    return kernels::SwigluBackward<T>{
        pointer<T>(dy), pointer<T>(gate),  pointer<T>(up),  gate.stride(0), gate.size(0),
        gate.size(1),   pointer<T>(dgate), pointer<T>(dup), dgate.stride(0)};
  });
}

bool supports_dropout(const at::Tensor& x) { return x.is_cpu() && supports(x); }

void dropout(const at::Tensor& x, const Dropout& draws, at::Tensor& y) {
  with_type(x, [&]<typename T>(T) {
    kernels::run(kernels::Dropout<T>{pointer<T>(x), pointer<int64_t>(draws.sequences),
                                     pointer<int32_t>(draws.index), x.size(0), x.size(1),
                                     draws_of(draws), pointer<T>(y)});
  });
}

void attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const AttentionMask& mask, at::Tensor& out, at::Tensor& lse) {
  with_type(q, [&]<typename T>(T) {
    kernels::run(kernels::AttentionForward<T>{attention_shape(q, k, mask), input<T>(q),
                                              input<T>(k), input<T>(v), output<T>(out),
                                              pointer<float>(lse)});
  });
}

void attention_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k,
                        const at::Tensor& v, const AttentionMask& mask,
                        const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                        at::Tensor& dk, at::Tensor& dv) {
  with_type(q, [&]<typename T>(T) {
    kernels::run(kernels::AttentionBackward<T>{
        attention_shape(q, k, mask), input<T>(q), input<T>(k), input<T>(v), input<T>(out),
        input<T>(dout), pointer<float>(lse), output<T>(dq), output<T>(dk),
        output<T>(dv)});
  });
}

void attention_part_forward(const AttentionPart& part, at::Tensor& out, at::Tensor& lse) {
  with_type(part.q, [&]<typename T>(T) {
    kernels::run(kernels::AttentionForward<T, Results::GoOn>{
        attention_shape(part), input<T>(part.q), input<T>(part.k), input<T>(part.v),
        output<float>(out), pointer<float>(lse)});
  });
}

void attention_part_backward(const AttentionPart& part, const at::Tensor& dout,
                             const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                             at::Tensor& dk, at::Tensor& dv) {
  with_type(part.q, [&]<typename T>(T) {
    kernels::run(kernels::AttentionBackward<T, Results::GoOn>{
        attention_shape(part), input<T>(part.q), input<T>(part.k), input<T>(part.v),
        input<T>(out), input<T>(dout), pointer<float>(lse), output<float>(dq),
        output<float>(dk), output<float>(dv)});
  });
}

void cross_entropy(at::Tensor& logits, const at::Tensor& targets, double scale,
                   double z_loss, bool want_gradient, at::Tensor& cross_entropy,
                   at::Tensor& squared_lse) {
  run(logits, [&]<typename T>(T) {
    return kernels::CrossEntropy<T>{pointer<T>(logits),
                                    pointer<int64_t>(targets),
                                    logits.size(0),
                                    logits.size(1),
                                    scale,
                                    z_loss,
                                    want_gradient,
                                    pointer<float>(cross_entropy),
                                    pointer<float>(squared_lse)};
  });
}

bool supports_split_cross_entropy(const at::Tensor& logits) { return supports(logits); }

void cross_entropy_statistics(const at::Tensor& logits, const at::Tensor& targets,
                              at::Tensor& maximum, at::Tensor& sum_exp,
                              at::Tensor& picked) {
  run(logits, [&]<typename T>(T) {
    return kernels::CrossEntropyStatistics<T>{
        pointer<T>(logits),    pointer<int64_t>(targets), logits.size(0),
        logits.size(1),        pointer<float>(maximum),   pointer<float>(sum_exp),
        pointer<float>(picked)};
  });
}

void cross_entropy_gradient(at::Tensor& logits, const at::Tensor& targets,
                            const at::Tensor& lse, const at::Tensor& row_scale,
                            double z_loss) {
  run(logits, [&]<typename T>(T) {
    return kernels::CrossEntropyGradient<T>{
        pointer<T>(logits),  pointer<int64_t>(targets), logits.size(0), logits.size(1),
        pointer<float>(lse), pointer<float>(row_scale), z_loss};
  });
}

bool accumulate_weight_gradient(at::Tensor& grad, const at::Tensor& x,
                                const at::Tensor& dy) {
  const bool fits = x.is_cpu() && x.scalar_type() == at::kBFloat16 &&
                    dy.scalar_type() == at::kBFloat16 &&
                    grad.scalar_type() == at::kFloat && grad.is_contiguous() &&
                    x.stride(1) == 1 && dy.stride(1) == 1;
  if (!fits || !kernels::weight_gradient_available()) return false;
  kernels::accumulate_weight_gradient(pointer<Bf16>(dy), dy.stride(0), pointer<Bf16>(x),
                                      x.stride(0), x.size(0), dy.size(1), x.size(1),
                                      pointer<float>(grad));
  return true;
}

}  // namespace longhaul::ops::fused
