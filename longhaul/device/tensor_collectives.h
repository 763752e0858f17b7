#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/comm/communicator.h"

namespace longhaul::device {

/// A library of collectives that takes tensors and no addresses, as the process groups of
/// PyTorch do. The tensors are flat and contiguous. All functions throw Error with the
/// library's own words. One thread calls them.
class TensorCollectives {
 public:
  virtual ~TensorCollectives() = default;
  /// Returns the library's name and version, for the numerics fingerprint.
  virtual std::string describe() const = 0;
  /// Returns this process's number among all ranks.
  virtual int rank() const = 0;
  /// Makes a group of these ranks, in this order, and returns its number. A wait of the
  /// group may last so many seconds. Collective over the ranks of the group, which make
  /// the groups that they share in the same order.
  virtual int64_t make(const std::string& name, const std::vector<int>& ranks,
                       double seconds) = 0;
  /// Puts an operation behind what is in the device's stream, and returns its number.
  /// `verb` is AllReduce or Broadcast, where `in` is `out`, AllGather or ReduceScatter.
  /// Collective over the ranks of the group.
  virtual int64_t start(int64_t group, comm::Verb verb, comm::ReduceOp op, int root,
                        const at::Tensor& in, const at::Tensor& out) = 0;
  /// Returns whether an operation has ended.
  virtual bool is_done(int64_t operation) = 0;
  /// Puts an operation before what the caller puts into the device's stream from now on,
  /// and forgets its number.
  virtual void order(int64_t operation) = 0;
  /// Waits for everything that is in the device's stream.
  virtual void wait_for_device() = 0;
};

/// The name of the function that a plug-in with such a library exports:
/// `extern "C" TensorCollectives* longhaul_device_groups()`. The instance lives as long
/// as the process; null if this process has joined no others.
inline constexpr const char* kPluginGroups = "longhaul_device_groups";

/// Returns the collectives of the device's plug-in; null if it has none.
TensorCollectives* plugin_groups(at::Device device);

}  // namespace longhaul::device
