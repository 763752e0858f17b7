#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "longhaul/nn/forward_context.h"

namespace longhaul::nn {

void Losses::add(size_t term, const at::Tensor& sum) {
  if (again) return;
  if (sum.is_cpu()) {
    host_.at(term) += sum.item<double>();
    return;
  }
  if (!device_.defined()) device_ = sums_on(sum.device());
  device_.select(0, static_cast<int64_t>(term)).add_(sum.detach());
}

std::vector<double> Losses::sums() const {
  if (!device_.defined()) return host_;
  const at::Tensor read = device_.to(at::kCPU);
  const double* values = read.const_data_ptr<double>();
  return {values, values + read.numel()};
}

at::Tensor Losses::sums_on(at::Device device) const {
  if (device.is_cpu()) return at::tensor(host_, at::kDouble);
  if (device_.defined()) return device_;
  return at::zeros({static_cast<int64_t>(scales.size())},
                   at::TensorOptions(at::kDouble).device(device));
}

}  // namespace longhaul::nn
