#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "longhaul/comm/communicator.h"
#include "longhaul/optim/lamb.h"
#include "longhaul/optim/ratio_groups.h"

namespace longhaul::optim {

/// trust_ratio of LambSums, fp64 [N, 2] -> [N], on their device and with the same bits
/// where its square roots are rounded correctly.
at::Tensor trust_ratios(const at::Tensor& sums);

/// LAMB's ratios of one update: sums of squares of each tensor of the Hugging Face model,
/// however its parameters are cut, and what follows from them. All stays on the device,
/// and the host does not wait for it.
class TrustRatios {
 public:
  explicit TrustRatios(TensorOfParameter tensor_of);

  /// Forgets the last update's; the sums of the next are formed on this device.
  void begin(at::Device device);
  /// Where LambSums of a parameter are added, fp64 [2]: those that this rank alone
  /// counts, or those that count elsewhere and are dropped.
  at::Tensor sums_of(const std::string& parameter, bool counted) const;
  /// Adds over the ranks, with one message, and makes the ratios, and rates of `lr`.
  /// `world`: for tensors of the device. Collective.
  void finish(comm::Communicator& world, double lr);
  /// lr times the parameter's ratio, fp64 [1]; after finish.
  at::Tensor rate_of(const std::string& parameter) const;
  /// lr itself.
  at::Tensor rate_without_ratio() const;
  /// The parameter's ratio, after finish: waits for the device.
  double of(const std::string& parameter) const;

 private:
  int64_t row_of(const std::string& parameter) const;

  std::map<std::string, int64_t> rows_;  ///< by parameter: the same on every rank
  int64_t tensors_ = 0;
  at::Tensor sums_;    ///< [tensors + 1, 2]; the last row is what is dropped
  at::Tensor ratios_;  ///< [tensors + 1]; the last one is 1
  at::Tensor rates_;   ///< times lr
};

}  // namespace longhaul::optim
