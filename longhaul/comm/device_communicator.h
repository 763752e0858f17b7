#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/comm/device_api.h"
#include "longhaul/comm/device_wait.h"
#include "longhaul/comm/entry.h"
#include "longhaul/comm/over_host.h"
#include "longhaul/layout/group_use.h"

namespace longhaul::comm {

/// Returns the bytes that a rank sends in an operation if a device's library runs it as a
/// ring.
int64_t sent_in_rings(const Request& request, GroupRank place);

struct DeviceOptions {
  /// Returns the stream that the caller's kernels run on. An operation begins after what
  /// is in this stream at the operation's call. An empty function means the runtime's
  /// default stream.
  std::function<DeviceApi::Stream()> compute_stream;
  WaitClock clock;
  layout::Uses uses = layout::Uses::Both;
  int most_blocks = 0;  ///< DeviceApi::Members::most_blocks
  /// Whether open() makes the library's communicators, and not the constructor.
  bool opens_later = false;
};

/// A group of the same ranks as `bootstrap`, whose buffers are memory of a device; one
/// rank per device. Waits have the limits of `bootstrap`, and everything but the
/// operations goes over `bootstrap`.
///
/// What differs from groups of host memory:
/// - Collectives run one after the other on one stream. Transfers run on another stream
///   with a communicator of their own, in the order of the calls: a receive holds up the
///   sends after it (transfers_in_order). A group for transfers alone opens the
///   communicator of its collectives at the first of them. A group for collectives alone
///   has no transfers. All ranks must start the operations of groups
///   that share ranks in the same order.
/// - order() makes the compute stream wait and lets the host go on. wait() blocks the
///   calling thread; afterwards any stream may use the result.
/// - progress() throws if an operation has failed or has missed its deadline; a host
///   that waits for the device calls it now and then. The deadline counts from when the
///   device came to the operation.
/// - counts() assumes rings: what another algorithm of the library sends is not known.
/// - A barrier is a barrier of `bootstrap`, and so is abort(): operations that will never
///   end are ended by the device's driver when the process ends.
class DeviceCommunicator final : public OverHost {
 public:
  /// Makes the library's communicators over the ranks of `bootstrap`, unless
  /// options.opens_later. Collective.
  DeviceCommunicator(std::shared_ptr<DeviceApi> api,
                     std::shared_ptr<Communicator> bootstrap, int device,
                     const DeviceOptions& options);
  /// Leaves the library's communicators to the end of the process: destroying them
  /// communicates.
  ~DeviceCommunicator() override;

  /// Makes the library's communicators of groups that open later: begins all of them,
  /// and then waits for them. All ranks give their groups in the same order. Collective.
  static void open(const std::vector<DeviceCommunicator*>& groups);

  WorkPtr start(Request request) override;
  std::unique_ptr<Communicator> split(int color, int key, std::string name) override;
  void progress() override;
  bool transfers_in_order() const override { return true; }
  const CommCounts& counts() const override { return counts_; }
  /// Returns the bytes of the device's memory that the library has for this group now;
  /// nothing if it does not tell.
  std::optional<uint64_t> device_bytes() const;

  struct Flight;   ///< an operation that was put into a stream
  struct Channel;  ///< a communicator of the library, its stream and the operations in it
  struct Shared;   ///< what Works still need when their communicator is gone

 private:
  struct Opening;
  /// Begins nothing, but agrees with the other ranks on how they will meet. Collective.
  Opening prepare(Channel& channel, const char* kind);
  static void make(std::vector<Opening> all);
  GroupRank place_;
  std::shared_ptr<Shared> shared_;
  CommCounts counts_;
  OperationNumbers numbers_;
};

}  // namespace longhaul::comm
