#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/optim/lamb.h"
#include "longhaul/optim/ratio_groups.h"

namespace longhaul::optim {

/// LAMB's ratios of one update: sums of squares of each tensor of the Hugging Face model,
/// however its parameters are cut, and what follows from them. The sums stay on their
/// device until all are there.
class TrustRatios {
 public:
  explicit TrustRatios(TensorOfParameter tensor_of);

  /// Forgets the last update's; the sums of the next are formed on this device.
  void begin(at::Device device);
  /// Where LambSums of a parameter are added, fp64 [2]: those that this rank alone
  /// counts, or those that count elsewhere and are dropped.
  at::Tensor sums_of(const std::string& parameter, bool counted) const;
  /// Adds over the ranks, in rank order and with one message, once the device has said
  /// all sums together: the only wait. Collective.
  void finish(comm::Communicator& world);
  /// After finish.
  double of(const std::string& parameter) const;

 private:
  int64_t row_of(const std::string& parameter) const;

  std::map<std::string, int64_t> rows_;  ///< by parameter: the same on every rank
  int64_t tensors_ = 0;
  at::Tensor sums_;  ///< [tensors + 1, 2]; the last row is what is dropped
  std::vector<double> totals_;
};

}  // namespace longhaul::optim
