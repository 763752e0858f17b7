#include "longhaul/optim/trust_ratios.h"

#include <ATen/ops/zeros.h>

#include "longhaul/base/error.h"

namespace longhaul::optim {

TrustRatios::TrustRatios(TensorOfParameter tensor_of) {
  std::map<std::string, int64_t> row_of_tensor;
  for (const auto& [parameter, tensor] : tensor_of) row_of_tensor[tensor] = 0;
  for (auto& [tensor, row] : row_of_tensor) row = tensors_++;
  for (const auto& [parameter, tensor] : tensor_of) {
    rows_[parameter] = row_of_tensor.at(tensor);
  }
  totals_.resize(static_cast<size_t>(2 * tensors_));
}

void TrustRatios::begin(at::Device device) {
  sums_ = at::zeros({tensors_ + 1, 2}, at::TensorOptions(at::kDouble).device(device));
}

at::Tensor TrustRatios::sums_of(const std::string& parameter, bool counted) const {
  return sums_.select(0, counted ? row_of(parameter) : tensors_);
}

void TrustRatios::finish(comm::Communicator& world) {
  const at::Tensor read = sums_.cpu();
  const double* values = read.const_data_ptr<double>();
  totals_.assign(values, values + 2 * tensors_);
  world.all_reduce_wait({totals_.data(), 2 * tensors_, DType::F64}, comm::ReduceOp::Sum);
}

double TrustRatios::of(const std::string& parameter) const {
  const auto at = static_cast<size_t>(2 * row_of(parameter));
  return trust_ratio({totals_[at], totals_[at + 1]});
}

int64_t TrustRatios::row_of(const std::string& parameter) const {
  const auto found = rows_.find(parameter);
  LH_ASSERT(found != rows_.end(), "{} is no parameter of the model", parameter);
  return found->second;
}

}  // namespace longhaul::optim
