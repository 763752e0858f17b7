#include "longhaul/ops/fused/fused.h"

#include "longhaul/ops/fused/fused_kernels.h"
#include "longhaul/ops/fused/fused_operator.h"

namespace longhaul::ops::fused {
namespace {

using at::Tensor;
using kernels::Bf16;
using kernels::Results;

// The contracts of fused.h, for kernels of any device.
TORCH_LIBRARY(longhaul, library) {
  library.def(
      "rms_norm_forward(Tensor x, Tensor delta, Tensor weight, float eps, int form, "
      "Tensor(a!) sum, Tensor(b!) y, Tensor(c!) inverse_rms) -> ()");
  library.def(
      "rms_norm_backward(Tensor dy, Tensor x, Tensor inverse_rms, Tensor weight, "
      "int form, Tensor dsum, Tensor(a!) dx, Tensor(b!) dweight) -> ()");
  library.def(
      "rope(Tensor x, Tensor cos, Tensor sin, Tensor positions, bool inverse, "
      "Tensor(a!) y) -> ()");
  // `activation`: of Activation.
  library.def(
      "gated_product_forward(Tensor gate, Tensor up, int activation, Tensor(a!) y) -> "
      "()");
  library.def(
      "gated_product_backward(Tensor dy, Tensor gate, Tensor up, int activation, "
      "Tensor(a!) dgate, Tensor(b!) dup) -> ()");
  library.def(
      "cross_entropy(Tensor(a!) logits, Tensor targets, float scale, float z_loss, "
      "bool want_gradient, Tensor(b!) cross_entropy, Tensor(c!) squared_lse) -> ()");
  library.def(
      "cross_entropy_statistics(Tensor logits, Tensor targets, Tensor(a!) maximum, "
      "Tensor(b!) sum_exp, Tensor(c!) picked) -> ()");
  library.def(
      "cross_entropy_gradient(Tensor(a!) logits, Tensor targets, Tensor lse, "
      "Tensor row_scale, float z_loss) -> ()");
  // No kernels of the CPU: there LibTorch's gelu is one pass, index_add_ repeatable, and
  // attention takes a part of the keys in by itself.
  library.def("gelu_forward(Tensor x, bool tanh, Tensor(a!) y) -> ()");
  library.def("gelu_backward(Tensor dy, Tensor x, bool tanh, Tensor(a!) dx) -> ()");
  library.def(
      "embedding_gradient(Tensor dy, Tensor rows, Tensor order, Tensor(a!) grad) -> ()");
  library.def(
      "merge_attention(Tensor part, Tensor part_lse, Tensor(a!) merged, "
      "Tensor(b!) merged_lse) -> ()");
}

struct OnCpu {
  template <typename Kernel>
  static void run(const Kernel& kernel, at::Device /*device*/) {
    kernels::run(kernel);
  }
};

TORCH_LIBRARY_IMPL(longhaul, CPU, library) { register_kernels<OnCpu>(library); }

using RmsNormForward =
    Operator<void(const Tensor&, const Tensor&, const Tensor&, double, int64_t,
                  const Tensor&, const Tensor&, const Tensor&)>;
using RmsNormBackward =
    Operator<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t,
                  const Tensor&, const Tensor&, const Tensor&)>;
using Rope = Operator<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                           bool, const Tensor&)>;
using GatedProductForward =
    Operator<void(const Tensor&, const Tensor&, int64_t, const Tensor&)>;
using GatedProductBackward = Operator<void(const Tensor&, const Tensor&, const Tensor&,
                                           int64_t, const Tensor&, const Tensor&)>;
using GeluForward = Operator<void(const Tensor&, bool, const Tensor&)>;
using GeluBackward = Operator<void(const Tensor&, const Tensor&, bool, const Tensor&)>;
using CrossEntropy = Operator<void(const Tensor&, const Tensor&, double, double, bool,
                                   const Tensor&, const Tensor&)>;
using CrossEntropyStatistics = Operator<void(const Tensor&, const Tensor&, const Tensor&,
                                             const Tensor&, const Tensor&)>;
using CrossEntropyGradient =
    Operator<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&, double)>;
using EmbeddingGradient =
    Operator<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&)>;
using MergeAttention =
    Operator<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&)>;

/// Found once, after the library above was registered.
struct Operators {
  RmsNormForward rms_norm_forward{"longhaul::rms_norm_forward"};
  RmsNormBackward rms_norm_backward{"longhaul::rms_norm_backward"};
  Rope rope{"longhaul::rope"};
  GatedProductForward gated_product_forward{"longhaul::gated_product_forward"};
  GatedProductBackward gated_product_backward{"longhaul::gated_product_backward"};
  GeluForward gelu_forward{"longhaul::gelu_forward"};
  GeluBackward gelu_backward{"longhaul::gelu_backward"};
  CrossEntropy cross_entropy{"longhaul::cross_entropy"};
  CrossEntropyStatistics statistics{"longhaul::cross_entropy_statistics"};
  CrossEntropyGradient gradient{"longhaul::cross_entropy_gradient"};
  EmbeddingGradient embedding_gradient{"longhaul::embedding_gradient"};
  MergeAttention merge_attention{"longhaul::merge_attention"};
};

const Operators& operators() {
  static const Operators found;
  return found;
}

bool has_element_type(const Tensor& x) {
  return x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
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

bool is_bf16_matrix(const at::Tensor& x) {
  return x.is_cpu() && x.dim() == 2 && x.scalar_type() == at::kBFloat16 &&
         (x.stride(0) == 1 || x.stride(1) == 1);
}

kernels::MatrixInput matrix(const at::Tensor& x) {
  return {pointer<Bf16>(x), x.stride(0), x.stride(1)};
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
          scale_of<float>(mask, q.size(3)),
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

bool supports(Form form, const at::Tensor& x) {
  if (!has_element_type(x)) return false;
  const Operators& all = operators();
  switch (form) {
    case Form::RmsNorm:
      return all.rms_norm_forward.serves(x) && all.rms_norm_backward.serves(x);
    case Form::Rope:
      return all.rope.serves(x);
    case Form::GatedProduct:
      return all.gated_product_forward.serves(x) && all.gated_product_backward.serves(x);
    case Form::Gelu:
      return all.gelu_forward.serves(x) && all.gelu_backward.serves(x);
    case Form::CrossEntropy:
      return all.cross_entropy.serves(x);
    case Form::SplitCrossEntropy:
      return all.statistics.serves(x) && all.gradient.serves(x);
    case Form::EmbeddingGradient:
      return all.embedding_gradient.serves(x);
    case Form::MergeAttention:
      return all.merge_attention.serves(x);
  }
  return false;
}

bool supports_attention(const at::Tensor& q, int64_t head_dim) {
  return q.is_cpu() && has_element_type(q) && kernels::attention_supported(head_dim);
}

void rms_norm_forward(const at::Tensor& x, const at::Tensor& delta,
                      const at::Tensor& weight, double eps, at::Tensor& sum,
                      at::Tensor& y, at::Tensor& inverse_rms, RmsForm form) {
  operators().rms_norm_forward.on(x, x, delta, weight, eps, static_cast<int64_t>(form),
                                  sum, y, inverse_rms);
}

void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                       const at::Tensor& inverse_rms, const at::Tensor& weight,
                       const at::Tensor& dsum, at::Tensor& dx, const at::Tensor& dweight,
                       RmsForm form) {
  operators().rms_norm_backward.on(x, dy, x, inverse_rms, weight,
                                   static_cast<int64_t>(form), dsum, dx, dweight);
}

void rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
          const at::Tensor& positions, bool inverse, at::Tensor& y) {
  operators().rope.on(x, x, cos, sin, positions, inverse, y);
}

void gated_product_forward(const at::Tensor& gate, const at::Tensor& up,
                           Activation activation, at::Tensor& y) {
  operators().gated_product_forward.on(gate, gate, up, static_cast<int64_t>(activation),
                                       y);
}

void gated_product_backward(const at::Tensor& dy, const at::Tensor& gate,
                            const at::Tensor& up, Activation activation,
                            at::Tensor& dgate, at::Tensor& dup) {
  operators().gated_product_backward.on(gate, dy, gate, up,
                                        static_cast<int64_t>(activation), dgate, dup);
}

void gelu_forward(const at::Tensor& x, bool tanh, at::Tensor& y) {
  operators().gelu_forward.on(x, x, tanh, y);
}

void gelu_backward(const at::Tensor& dy, const at::Tensor& x, bool tanh, at::Tensor& dx) {
  operators().gelu_backward.on(x, dy, x, tanh, dx);
}

bool supports_dropout(const at::Tensor& x) { return x.is_cpu() && has_element_type(x); }

void dropout(const at::Tensor& x, const Dropout& draws, at::Tensor& y) {
  RECORD_FUNCTION("longhaul::dropout", {});
  with_type(x, [&]<typename T>(T) {
    kernels::run(kernels::Dropout<T>{pointer<T>(x), pointer<int64_t>(draws.sequences),
                                     pointer<int32_t>(draws.index), x.size(0), x.size(1),
                                     draws_of(draws), pointer<T>(y)});
  });
}

void attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const AttentionMask& mask, at::Tensor& out, at::Tensor& lse) {
  RECORD_FUNCTION("longhaul::attention_forward", {});
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
  RECORD_FUNCTION("longhaul::attention_backward", {});
  with_type(q, [&]<typename T>(T) {
    kernels::run(kernels::AttentionBackward<T>{
        attention_shape(q, k, mask), input<T>(q), input<T>(k), input<T>(v), input<T>(out),
        input<T>(dout), pointer<float>(lse), output<T>(dq), output<T>(dk),
        output<T>(dv)});
  });
}

void attention_part_forward(const AttentionPart& part, at::Tensor& out, at::Tensor& lse) {
  RECORD_FUNCTION("longhaul::attention_part_forward", {});
  with_type(part.q, [&]<typename T>(T) {
    kernels::run(kernels::AttentionForward<T, Results::GoOn>{
        attention_shape(part), input<T>(part.q), input<T>(part.k), input<T>(part.v),
        output<float>(out), pointer<float>(lse)});
  });
}

void attention_part_backward(const AttentionPart& part, const at::Tensor& dout,
                             const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                             at::Tensor& dk, at::Tensor& dv) {
  RECORD_FUNCTION("longhaul::attention_part_backward", {});
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
  operators().cross_entropy.on(logits, logits, targets, scale, z_loss, want_gradient,
                               cross_entropy, squared_lse);
}

void cross_entropy_statistics(const at::Tensor& logits, const at::Tensor& targets,
                              at::Tensor& maximum, at::Tensor& sum_exp,
                              at::Tensor& picked) {
  operators().statistics.on(logits, logits, targets, maximum, sum_exp, picked);
}

void cross_entropy_gradient(at::Tensor& logits, const at::Tensor& targets,
                            const at::Tensor& lse, const at::Tensor& row_scale,
                            double z_loss) {
  operators().gradient.on(logits, logits, targets, lse, row_scale, z_loss);
}

void embedding_gradient(const at::Tensor& dy, const at::Tensor& rows,
                        const at::Tensor& order, const at::Tensor& grad) {
  operators().embedding_gradient.on(dy, dy, rows, order, grad);
}

void merge_attention(const at::Tensor& part, const at::Tensor& part_lse, at::Tensor& out,
                     at::Tensor& lse) {
  operators().merge_attention.on(part, part, part_lse, out, lse);
}

bool supports_product(const at::Tensor& a, const at::Tensor& b) {
  // Of fewer rows, as of a text that is generated, packing the other factor takes longer
  // than LibTorch's product.
  constexpr int64_t kFewestRows = 4;
  return kernels::product_available() && a.size(0) >= kFewestRows && is_bf16_matrix(a) &&
         is_bf16_matrix(b);
}

void product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
             at::Tensor& y) {
  RECORD_FUNCTION("longhaul::product", std::vector<c10::IValue>({a, b}));
  kernels::run(kernels::Product{.a = matrix(a),
                                .b = matrix(b),
                                .M = a.size(0),
                                .K = a.size(1),
                                .N = b.size(1),
                                .y = pointer<Bf16>(y),
                                .bias = pointer<Bf16>(bias)});
}

bool weight_gradient(at::Tensor& grad, const at::Tensor& x, const at::Tensor& dy,
                     bool add) {
  if (!grad.is_contiguous() || !is_bf16_matrix(x) || !is_bf16_matrix(dy)) return false;
  const bool wide = grad.scalar_type() == at::kFloat;
  const bool in_rows = x.stride(1) == 1 && dy.stride(1) == 1;
  if (x.size(0) == 0) {  // of no tokens, which the kernels do not take
    if (!add) grad.zero_();
    return true;
  }
  if (kernels::product_available()) {
    RECORD_FUNCTION("longhaul::weight_gradient", std::vector<c10::IValue>({dy.t(), x}));
    kernels::run(kernels::Product{.a = matrix(dy.t()),
                                  .b = matrix(x),
                                  .M = dy.size(1),
                                  .K = dy.size(0),
                                  .N = x.size(1),
                                  .y = wide ? nullptr : pointer<Bf16>(grad),
                                  .add = add,
                                  .wide = wide ? pointer<float>(grad) : nullptr});
    return true;
  }
  if (!wide || !in_rows || !kernels::weight_gradient_available()) return false;
  if (!add) grad.zero_();
  RECORD_FUNCTION("longhaul::weight_gradient", std::vector<c10::IValue>({dy.t(), x}));
  kernels::accumulate_weight_gradient(pointer<Bf16>(dy), dy.stride(0), pointer<Bf16>(x),
                                      x.stride(0), x.size(0), dy.size(1), x.size(1),
                                      pointer<float>(grad));
  return true;
}

}  // namespace longhaul::ops::fused
