#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "longhaul/comm/communicator.h"

namespace longhaul::comm {

/// Returns what identifies this machine: its host name and the kernel's boot id. Two
/// machines of one name differ in the boot id, two containers of one machine in the host
/// name. The environment variable LONGHAUL_NODE_NAME replaces both, for tests whose ranks
/// pretend to be on several machines.
std::string machine_name();

/// Returns on how many machines the ranks of `group` are. Collective.
int64_t count_machines(Communicator& group);

/// Returns the group of those ranks of `group` that give the same `machine`, in the
/// group's order. Waits for all ranks. Collective.
std::unique_ptr<Communicator> split_by_host(Communicator& group, std::string name,
                                            const std::string& machine = machine_name());

}  // namespace longhaul::comm
