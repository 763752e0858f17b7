#pragma once

#include <map>
#include <string>

#include "longhaul/comm/communicator.h"
#include "longhaul/optim/lamb.h"
#include "longhaul/optim/ratio_groups.h"

namespace longhaul::optim {

/// LAMB's ratios of one update: sums of squares of each tensor of the Hugging Face model,
/// however its parameters are cut, and what follows from them.
class TrustRatios {
 public:
  explicit TrustRatios(TensorOfParameter tensor_of);

  /// Forgets the last update's.
  void begin();
  /// Adds what this rank alone counts of a parameter.
  void add(const std::string& parameter, const LambSums& sums);
  /// Adds over the ranks, in rank order and with one message. Collective.
  void finish(comm::Communicator& world);
  /// After finish.
  double of(const std::string& parameter) const;

 private:
  TensorOfParameter tensor_of_;
  std::map<std::string, LambSums> sums_;  ///< by tensor: the same keys on every rank
};

}  // namespace longhaul::optim
