#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/layout/group_use.h"

namespace longhaul::device {

// Accelerators are used through LibTorch's common interface: c10::Stream, c10::Event and
// their guards. CUDA and the device of a plug-in are alike here.

/// Returns the device that `wanted` (run.device: "auto", "cpu", "cuda" or "plugin") means
/// on this rank, and makes it current for the calling thread. "auto" is an accelerator if
/// there is one. Throws ConfigError if the device is absent, or if ranks of `node`, the
/// ranks of this machine, would share one. Collective over `node`.
at::Device choose(const std::string& wanted, comm::Communicator& node);

/// Makes the device current for the calling thread. A thread begins with device 0, where
/// the first event or memory that it asks for would take memory of the driver.
void take(at::Device device);

/// Returns which of the `devices` that this rank sees is its own. `firsts` has, for each
/// rank of the machine, the identity of the device that the rank sees first; an empty
/// text is unknown. Where these all differ, a rank's own device is its first: it sees no
/// others (srun --gpus-per-task), or its list begins with its own
/// (CUDA_VISIBLE_DEVICES=1,0). Otherwise all ranks see the devices in one order, and a
/// rank takes the device of its place. Throws ConfigError where there are fewer devices
/// than ranks.
int ordinal(int local_rank, int devices, const std::vector<std::string>& firsts);

/// Throws ConfigError if two ranks of a machine have one device, which `identities` says
/// for each rank; an empty text is unknown.
void check_distinct(const std::vector<std::string>& identities);

/// Returns "cpu", or a GPU's name and architecture, for the numerics fingerprint.
std::string name(at::Device device);

/// Throws ConfigError if the kernels of this program cannot run on the device: none
/// was compiled for its architecture, or its driver is too old. Must be called before the
/// first kernel.
void check(at::Device device);

/// Returns why this program cannot use the GPUs of this machine, or an empty text if
/// the machine has none. A run whose device "auto" became the CPU asks for this.
std::string unused_gpus();

/// Returns a group for tensors of the device with the ranks of `host`, a group for host
/// memory, which must outlive the result. The group uses the device's own collectives, or
/// goes through the host if the device has none. Before its first operation open_groups()
/// must be called. Collective.
std::unique_ptr<comm::Communicator> group_for(at::Device device, comm::Communicator& host,
                                              const layout::GroupUse& use);

using Groups = std::vector<std::shared_ptr<comm::Communicator>>;

/// Makes what groups of group_for() need of the device's collectives: all is begun before
/// the first is waited for. Collective over all ranks of all groups.
void open_groups(const Groups& groups);

/// Returns the bytes of the device's memory that its collectives have now for these
/// groups; nothing if they do not tell.
std::optional<uint64_t> bytes_of_groups(const Groups& groups);

/// Prepares the collectives of devices before the first group is made. Sets what they
/// read from the environment where people have set nothing (comm::DeviceApi::prepare).
/// Throws ConfigError if ranks differ in NCCL's or the fabric's settings, or if a plug-in
/// that these name is absent. Returns what the log is to warn of. `node` has the ranks of
/// this machine. Collective over `world`.
std::vector<std::string> prepare_collectives(at::Device device, bool repeats,
                                             comm::Communicator& world,
                                             const comm::Communicator& node);

/// Describes what adds up tensors of the device over the ranks (the device's collectives
/// or the host), for the numerics fingerprint.
std::string describe_sums(at::Device device, const comm::Communicator& world);

/// Returns an event behind everything that is in the device's current stream.
c10::Event mark(at::Device device);

/// Returns a stream for copies beside the device's current stream; the current stream
/// itself if the device is a plug-in's and has no other.
c10::Stream side_stream(at::Device device);

/// Puts the mark before everything that the caller puts into the current stream of the
/// mark's device from now on.
void order(const c10::Event& mark);

/// Waits until the device has come to the mark. Makes the mark's device current for the
/// calling thread. Calls `look` now and then, which throws to end the wait if the device
/// cannot come to the mark any more.
void wait(const c10::Event& mark, const std::function<void()>& look);

/// The bytes of a device's memory: the bytes that are free now, and all bytes.
struct Memory {
  size_t free = 0;
  size_t total = 0;
};
/// Returns the device's memory; nothing if the device does not tell (a plug-in's
/// device need not).
std::optional<Memory> memory(at::Device device);

/// Returns the most bytes of the device's memory that the process has held at once; 0 on
/// a CPU and if the device does not count them.
int64_t peak_bytes(at::Device device);

/// Returns the bytes of the device's memory that tensors have now; 0 on a CPU and if
/// the device does not count them. Does not wait for the device.
int64_t used_bytes(at::Device device);

/// Throws ConfigError if the device is a plug-in's and has no streams besides the current
/// stream. The error names `setting`, the setting that needs them.
void check_side_streams(at::Device device, const std::string& setting);
/// Throws ConfigError if the device is a plug-in's and has no events that measure time.
/// The error names `setting`, the setting that needs them.
void check_timing(at::Device device, const std::string& setting);

/// While a BackwardHere lives, autograd runs the backward of any device on the calling
/// thread, which owns the communicators. Otherwise a device's backward has a thread of
/// its own.
class BackwardHere {
 public:
  BackwardHere();
  ~BackwardHere();
  BackwardHere(const BackwardHere&) = delete;
  BackwardHere& operator=(const BackwardHere&) = delete;

 private:
  bool before_;
};

}  // namespace longhaul::device
