#include "longhaul/optim/trust_ratios.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/zeros.h>

#include "longhaul/base/error.h"
#include "longhaul/tensor/buffer_of.h"
#include "longhaul/tensor/device_limits.h"

namespace longhaul::optim {

at::Tensor trust_ratios(const at::Tensor& sums) {
  if (sums.is_cpu()) {
    // The last bit of ATen's square roots depends on a library, so trust_ratio() takes
    // the roots.
    at::Tensor ratios = at::empty({sums.size(0)}, sums.options());
    const auto from = sums.accessor<double, 2>();
    for (int64_t i = 0; i < sums.size(0); ++i) {
      ratios.data_ptr<double>()[i] = trust_ratio({from[i][0], from[i][1]});
    }
    return ratios;
  }
  const at::Tensor weight = sums.select(-1, 0), update = sums.select(-1, 1);
  at::Tensor ratio = at::sqrt(weight) / at::sqrt(update);
  // A tensor without an update has an infinite ratio or NaN, which is not below 1.
  const at::Tensor holds = ratio.lt(1.0).logical_and(weight.gt(0.0));
  return ratio.masked_fill_(holds.logical_not(), 1.0);
}

TrustRatios::TrustRatios(TensorOfParameter tensor_of) {
  std::map<std::string, int64_t> row_of_tensor;
  for (const auto& [parameter, tensor] : tensor_of) row_of_tensor[tensor] = 0;
  for (auto& [tensor, row] : row_of_tensor) row = tensors_++;
  for (const auto& [parameter, tensor] : tensor_of) {
    rows_[parameter] = row_of_tensor.at(tensor);
  }
}

void TrustRatios::begin(at::Device device) {
  device_ = device;
  added_.assign(static_cast<size_t>(tensors_), {});
  if (!tensor::limits_of(device).wide_types) return;
  sums_ = at::zeros({tensors_ + 1, 2}, at::TensorOptions(at::kDouble).device(device));
}

at::Tensor TrustRatios::sums_of(const std::string& parameter, bool counted) const {
  return sums_.select(0, counted ? row_of(parameter) : tensors_);
}

void TrustRatios::add(const std::string& parameter, const at::Tensor& sums) {
  at::Tensor& row = added_.at(static_cast<size_t>(row_of(parameter)));
  row = row.defined() ? row + sums : sums;
}

void TrustRatios::finish_added(comm::Communicator& world, double lr) {
  const auto there = at::TensorOptions(at::kFloat).device(device_);
  const at::Tensor none = at::zeros({1, 2}, there);
  for (at::Tensor& row : added_) {
    if (!row.defined()) row = none;
  }
  const at::Tensor totals = at::cat(added_);
  if (world.size() > 1)
    world.all_reduce_order(tensor::buffer_of(totals), comm::ReduceOp::Sum);
  ratios_ = at::cat({trust_ratios(totals), at::ones({1}, there)});
  rates_ = ratios_ * lr;
}

void TrustRatios::finish(comm::Communicator& world, double lr) {
  if (!tensor::limits_of(device_).wide_types) return finish_added(world, lr);
  at::Tensor totals = sums_.narrow(0, 0, tensors_);
  if (world.size() > 1)
    world.all_reduce_order(tensor::buffer_of(totals), comm::ReduceOp::Sum);
  ratios_ = trust_ratios(sums_);
  ratios_.narrow(0, tensors_, 1).fill_(1.0);
  rates_ = ratios_ * lr;
}

at::Tensor TrustRatios::rate_of(const std::string& parameter) const {
  return rates_.narrow(0, row_of(parameter), 1);
}

at::Tensor TrustRatios::rate_without_ratio() const {
  return rates_.narrow(0, tensors_, 1);
}

double TrustRatios::of(const std::string& parameter) const {
  LH_ASSERT(ratios_.defined(), "no update was made{}", "");
  return ratios_.select(0, row_of(parameter)).item<double>();
}

int64_t TrustRatios::row_of(const std::string& parameter) const {
  const auto found = rows_.find(parameter);
  LH_ASSERT(found != rows_.end(), "{} is no parameter of the model", parameter);
  return found->second;
}

}  // namespace longhaul::optim
