#pragma once

#include <memory>
#include <string>

#include "longhaul/comm/communicator.h"

namespace longhaul::comm {

/// This machine: its host name and the kernel's boot id, so that neither two machines of
/// one name nor two containers of one machine are taken for each other's neighbours. The
/// environment variable LONGHAUL_NODE_NAME says otherwise: for tests, whose ranks pretend
/// to be on several machines.
std::string machine_name();

/// The ranks of `group` on the same machine as this one, in the group's order: those that
/// give the same `machine`. Collective, blocks.
std::unique_ptr<Communicator> split_by_host(Communicator& group, std::string name,
                                            const std::string& machine = machine_name());

}  // namespace longhaul::comm
