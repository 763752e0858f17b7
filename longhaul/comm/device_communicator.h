#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/comm/device_api.h"
#include "longhaul/comm/engine.h"

namespace longhaul::comm {

struct DeviceOptions {
  /// The stream that the caller's kernels run on: operations begin after what is in it at
  /// their call. Empty: the runtime's default stream.
  std::function<DeviceApi::Stream()> compute_stream;
  /// How long abort() lets the library try, which can hang itself.
  double abort_seconds = 10.0;
};

/// A group of the same ranks as `bootstrap`, whose buffers are memory of a device; one
/// rank per device. Waits have the limits of `bootstrap`.
///
/// What differs from groups of host memory:
/// - Collectives run one after the other on one stream, transfers on another (with a
///   communicator of their own), each in the order of the calls: a receive holds up the
///   sends after it (transfers_in_order). All ranks must start the operations of groups
///   that share ranks in the same order.
/// - order() makes the compute stream wait and lets the host go on. wait() blocks the
///   calling thread; afterwards any stream may use the result.
/// - progress() finds what has failed or has met its deadline since: a host that waits
///   for the device asks it now and then. The deadline counts from when the device came
///   to the operation.
/// - counts() are those of rings: what another algorithm would send is not known.
/// - gather_strings, broadcast_string, any and barrier go over `bootstrap`.
class DeviceCommunicator final : public Communicator {
 public:
  /// Collective.
  DeviceCommunicator(std::shared_ptr<DeviceApi> api,
                     std::shared_ptr<Communicator> bootstrap, int device,
                     const DeviceOptions& options);
  /// Leaves the library's communicators to the end of the process: destroying them
  /// communicates.
  ~DeviceCommunicator() override;

  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  const std::string& name() const override { return bootstrap_->name(); }
  WorkPtr all_reduce(Buffer buffer, ReduceOp op) override;
  WorkPtr all_gather(ConstBuffer in, Buffer out) override;
  WorkPtr reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op) override;
  WorkPtr all_to_all(ConstBuffer in, Buffer out) override;
  WorkPtr broadcast(Buffer buffer, int root) override;
  WorkPtr send_recv(std::vector<Transfer> transfers) override;
  WorkPtr barrier() override;
  std::unique_ptr<Communicator> split(int color, int key, std::string name) override;
  void progress() override;
  bool transfers_in_order() const override { return true; }
  const CommOptions& limits() const override { return bootstrap_->limits(); }
  void abort(int exit_code) override;
  const CommCounts& counts() const override { return counts_; }
  Ledger& ledger() override { return bootstrap_->ledger(); }
  std::vector<std::string> gather_strings(const std::string& mine) override;
  std::string broadcast_string(const std::string& value, int root) override;
  bool any(bool mine) override;

  struct Flight;   ///< an operation that was put into its stream
  struct Channel;  ///< one communicator of the library, its stream, what is in it
  struct Shared;   ///< what Works need after their communicator is gone

 private:
  /// Counts, waits in the stream for the caller's, enqueues, and marks the end.
  WorkPtr start(Verb verb, size_t bytes, int64_t sent,
                const std::function<int(const Channel&)>& enqueue);

  std::shared_ptr<Communicator> bootstrap_;
  GroupRank place_;
  std::shared_ptr<Shared> shared_;
  CommCounts counts_;
  int64_t started_ = 0;
  int64_t transfers_started_ = 0;
};

}  // namespace longhaul::comm
