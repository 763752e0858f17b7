#include "longhaul/base/error.h"
#include "longhaul/ops/fused_cuda.h"

namespace longhaul::ops::fused::cuda {
namespace {

[[noreturn]] void absent() {
  throw Error(ErrorKind::Internal, "cuda",
              "a CUDA kernel was called in a program built without CUDA");
}

}  // namespace

bool supports(const at::Tensor&) { return false; }

std::string device_name(at::Device device) { return device.str(); }

void rms_norm_forward(const at::Tensor&, const at::Tensor&, double, at::Tensor&,
                      at::Tensor&) {
  absent();
}

void rms_norm_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                       const at::Tensor&, at::Tensor&, const at::Tensor&) {
  absent();
}

void rope(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
          bool, at::Tensor&) {
  absent();
}

void swiglu_forward(const at::Tensor&, const at::Tensor&, at::Tensor&) { absent(); }

void swiglu_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, at::Tensor&,
                     at::Tensor&) {
  absent();
}

void cross_entropy(at::Tensor&, const at::Tensor&, double, double, bool, at::Tensor&,
                   at::Tensor&) {
  absent();
}

}  // namespace longhaul::ops::fused::cuda
