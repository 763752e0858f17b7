#include "longhaul/optim/trust_ratios.h"

#include <utility>
#include <vector>

#include "longhaul/base/error.h"

namespace longhaul::optim {

TrustRatios::TrustRatios(TensorOfParameter tensor_of) : tensor_of_(std::move(tensor_of)) {
  begin();
}

void TrustRatios::begin() {
  for (const auto& [parameter, tensor] : tensor_of_) sums_[tensor] = {};
}

void TrustRatios::add(const std::string& parameter, const LambSums& sums) {
  const auto found = tensor_of_.find(parameter);
  LH_ASSERT(found != tensor_of_.end(), "{} is no parameter of the model", parameter);
  LambSums& total = sums_.at(found->second);
  total.weight += sums.weight;
  total.update += sums.update;
}

void TrustRatios::finish(comm::Communicator& world) {
  std::vector<double> flat;
  for (const auto& [tensor, sums] : sums_) {
    flat.push_back(sums.weight);
    flat.push_back(sums.update);
  }
  world.all_reduce_wait({flat.data(), static_cast<int64_t>(flat.size()), DType::F64},
                        comm::ReduceOp::Sum);
  size_t i = 0;
  for (auto& [tensor, sums] : sums_) {
    sums = {flat[i], flat[i + 1]};
    i += 2;
  }
}

double TrustRatios::of(const std::string& parameter) const {
  return trust_ratio(sums_.at(tensor_of_.at(parameter)));
}

}  // namespace longhaul::optim
