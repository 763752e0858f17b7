#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/comm/communicator.h"

namespace longhaul::device {

// An accelerator is spoken to through what LibTorch has for all of them: c10::Stream,
// c10::Event and their guards. CUDA and a plug-in's device are alike here.

/// The device that `wanted` (run.device: "auto", "cpu", "cuda" or "plugin") means on this
/// rank, made current: on a machine with several, that of the rank's place among the
/// ranks of `node`. "auto" is an accelerator where there is one. ConfigError where it is
/// absent, or where ranks would share one. Collective over `node`, the ranks of this
/// machine.
at::Device choose(const std::string& wanted, comm::Communicator& node);

/// Which of the `devices` that this rank sees is its own: those of all ranks of the
/// machine, or only its own (srun --gpus-per-task, --gpu-bind). ConfigError for neither.
int ordinal(int local_rank, int local_ranks, int devices);

/// "cpu", or a GPU's name and architecture: for the numerics fingerprint.
std::string name(at::Device device);

/// ConfigError where the kernels of this program cannot run on the device: none was
/// compiled for its architecture, or its driver is too old. To be called before the first
/// of them.
void check(at::Device device);

/// Why the GPUs of this machine are of no use to this program; empty where it has none.
/// For a run that took the CPU by "auto".
std::string unused_gpus();

/// The group for tensors of the device that `host`, a group for host memory that outlives
/// it, has the ranks of: over the device's own collectives, or through the host where it
/// has none. Collective.
std::unique_ptr<comm::Communicator> group_for(at::Device device,
                                              comm::Communicator& host);

/// Whose sums over the ranks these are: for the numerics fingerprint.
std::string describe_sums(at::Device device, const comm::Communicator& world);

/// A place in the device's current stream.
c10::Event mark(at::Device device);

/// Waits until the device has come to the mark; asks `look` now and then, which throws
/// where there is nothing to wait for any more.
void wait(const c10::Event& mark, const std::function<void()>& look);

/// Bytes of the device's memory: free now, and in all.
struct Memory {
  size_t free = 0;
  size_t total = 0;
};
/// Nothing where the device does not tell (a plug-in's need not).
std::optional<Memory> memory(at::Device device);

/// The most bytes that the process has held of the device's memory; 0 on a CPU and where
/// the device does not count them.
int64_t peak_bytes(at::Device device);

/// ConfigError where `setting` needs what this plug-in's device lacks: streams beside the
/// current one, or events that tell the time between them.
void check_side_streams(at::Device device, const std::string& setting);
void check_timing(at::Device device, const std::string& setting);

/// While it lives, autograd runs the backward of any device on the thread that asks for
/// it, which owns the communicators; without one a device has a thread of its own.
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
