#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "longhaul/comm/communicator.h"
#include "longhaul/optim/kernels/lamb.h"
#include "longhaul/optim/param_groups.h"

namespace longhaul::optim {

/// Returns trust_ratio of LambSums, fp64 [N, 2] -> [N], on their device. The bits are
/// those of trust_ratio() if the square roots of the device are rounded correctly.
at::Tensor trust_ratios(const at::Tensor& sums);

/// The trust ratios of LAMB for one update: the sums of squares of each tensor of the
/// Hugging Face model, however its parameters are cut, and the ratios that follow from
/// the sums. The numbers stay on the device, and the host does not wait for the device.
class TrustRatios {
 public:
  explicit TrustRatios(TensorOfParameter tensor_of);

  /// Begins an update, whose sums are formed on this device.
  void begin(at::Device device);
  /// Returns the fp64 [2] to which LambSums of a parameter are added. Without `counted`,
  /// since another rank counts the same elements, nobody reads the sums.
  at::Tensor sums_of(const std::string& parameter, bool counted) const;
  /// Adds sums of a parameter's elements that this rank counts, fp32 [1, 2], on a device
  /// without 64-bit numbers, which adds and divides in fp32.
  void add(const std::string& parameter, const at::Tensor& sums);
  /// Adds the sums over the ranks with one message, and makes the ratios and the rates of
  /// `lr`. `world` takes tensors of the device. Collective.
  void finish(comm::Communicator& world, double lr);
  /// Returns lr times the ratio of the parameter, fp64 [1]. Must be called after
  /// finish().
  at::Tensor rate_of(const std::string& parameter) const;
  /// Returns lr itself, fp64 [1].
  at::Tensor rate_without_ratio() const;
  /// Returns the ratio of the parameter. Waits for the device. Must be called after
  /// finish().
  double of(const std::string& parameter) const;

 private:
  int64_t row_of(const std::string& parameter) const;
  void finish_added(comm::Communicator& world, double lr);

  std::map<std::string, int64_t> rows_;  ///< by parameter; the same on every rank
  int64_t tensors_ = 0;
  at::Device device_ = at::kCPU;
  std::vector<at::Tensor> added_;  ///< by tensor; undefined where nothing was added
  at::Tensor sums_;    ///< [tensors + 1, 2]; the last row has the dropped sums
  at::Tensor ratios_;  ///< [tensors + 1]; the last one is 1
  at::Tensor rates_;   ///< ratios times lr
};

}  // namespace longhaul::optim
