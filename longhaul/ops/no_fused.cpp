// Stands in for fused.cpp where no fused kernels are built: everything takes its composite
// form.
#include "longhaul/base/error.h"
#include "longhaul/ops/fused.h"

namespace longhaul::ops::fused {
namespace {
[[noreturn]] void absent() { LH_ASSERT(false, "no fused kernels in this build"); }
}  // namespace

bool supports(const at::Tensor&) { return false; }
bool supports_gradient(const at::Tensor&) { return false; }
bool supports_attention(const at::Tensor&, int64_t) { return false; }
void rms_norm_forward(const at::Tensor&, const at::Tensor&, double, at::Tensor&,
                      at::Tensor&) { absent(); }
void rms_norm_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                       const at::Tensor&, at::Tensor&, const at::Tensor&) { absent(); }
void rope(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, bool,
          at::Tensor&) { absent(); }
void swiglu_forward(const at::Tensor&, const at::Tensor&, at::Tensor&) { absent(); }
void swiglu_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, at::Tensor&,
                     at::Tensor&) { absent(); }
void attention_forward(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                       const at::Tensor&, at::Tensor&, at::Tensor&) { absent(); }
void attention_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                        const at::Tensor&, const at::Tensor&, const at::Tensor&,
                        const at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor&) { absent(); }
void cross_entropy(at::Tensor&, const at::Tensor&, double, double, bool, at::Tensor&,
                   at::Tensor&) { absent(); }
bool accumulate_weight_gradient(at::Tensor&, const at::Tensor&, const at::Tensor&) {
  return false;
}

}  // namespace longhaul::ops::fused
