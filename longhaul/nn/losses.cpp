#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "longhaul/base/error.h"
#include "longhaul/nn/forward_context.h"
#include "longhaul/tensor/device_limits.h"

namespace longhaul::nn {

void Losses::add(size_t term, const at::Tensor& sum) {
  if (again) return;
  if (!tensor::limits_of(sum.device()).wide_types) {
    addends_.push_back({term, sum.detach().reshape({-1})});
    return;
  }
  if (sum.is_cpu()) {
    host_.at(term) += sum.item<double>();
    return;
  }
  if (!device_.defined()) device_ = sums_on(sum.device());
  device_.select(0, static_cast<int64_t>(term)).add_(sum.detach());
}

std::vector<double> Losses::sums() const {
  if (!device_.defined() && addends_.empty()) return host_;
  const at::Tensor of_device =
      device_.defined() ? device_ : sums_on(addends_.front().values.device());
  const at::Tensor read = of_device.to(at::kCPU).to(at::kDouble);
  const double* values = read.const_data_ptr<double>();
  return of_read({values, values + read.numel()});
}

at::Tensor Losses::sums_on(at::Device device) const {
  if (device.is_cpu()) return at::tensor(host_, at::kDouble);
  if (device_.defined()) return device_;
  const auto terms = static_cast<int64_t>(scales.size());
  const at::TensorOptions there = at::TensorOptions(device);
  if (tensor::limits_of(device).wide_types) {
    return at::zeros({terms}, there.dtype(at::kDouble));
  }
  if (addends_.empty()) return at::zeros({0}, there.dtype(at::kFloat));
  std::vector<at::Tensor> all;
  for (const Addends& part : addends_) all.push_back(part.values);
  return at::cat(all);
}

std::vector<double> Losses::of_read(const std::vector<double>& values) const {
  if (addends_.empty() && values.size() == scales.size()) return values;
  std::vector<double> sums(scales.size(), 0.0);
  auto from = values.begin();
  for (const Addends& part : addends_) {
    LH_ASSERT(values.end() - from >= part.values.numel(), "{} values of more addends",
              values.size());
    for (int64_t i = 0; i < part.values.numel(); ++i) sums.at(part.term) += *from++;
  }
  return sums;
}

}  // namespace longhaul::nn
