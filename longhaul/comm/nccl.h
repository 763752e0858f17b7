#pragma once

#include <functional>
#include <memory>
#include <string>

#include "longhaul/comm/communicator.h"
#include "longhaul/comm/options.h"

namespace longhaul::comm {

/// False in a build without NCCL.
bool nccl_is_built();

/// NCCL's version and what the environment says about its algorithms: for the numerics
/// fingerprint, since it chooses the order of its sums. "one rank" for one rank.
std::string describe_nccl(const Communicator& world);

struct NcclOptions {
  CommOptions limits;
  /// The stream (cudaStream_t) that the caller's kernels run on: operations begin after
  /// what is in it at their call. Empty: the legacy default stream.
  std::function<void*()> compute_stream;
  /// How long abort() lets ncclCommAbort try, which can hang itself.
  double abort_seconds = 10.0;
};

/// A group of the same ranks as `bootstrap`, which outlives it, whose buffers are memory
/// of CUDA device `device`, one rank per device. ConfigError in a build without NCCL or
/// where its library cannot be loaded. Collective.
///
/// State: its logic is tested against a fake of NCCL's calls; it has never run on several
/// GPUs.
///
/// What differs from the other backends:
/// - Sums are added by NCCL in an order of its own: repeatable with the same ranks on the
///   same machines, but not bitwise the same on another topology, and bf16 is rounded on
///   the way. Max need not keep NaN.
/// - Collectives run one after the other on one stream, transfers on another (with a
///   communicator of their own), each in the order of the calls. All ranks must start the
///   operations of groups that share ranks in the same order.
/// - wait() blocks the calling thread; afterwards any stream may use the result. test()
///   is true when the device is done.
/// - counts() are those of NCCL's rings: what another algorithm would send is not known.
/// - gather_strings, broadcast_string, any and barrier go over `bootstrap`.
std::unique_ptr<Communicator> nccl_group(Communicator& bootstrap, int device,
                                         const NcclOptions& options = {});

}  // namespace longhaul::comm
