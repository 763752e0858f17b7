#pragma once

#include <set>
#include <string>

namespace longhaul::rehearsal {

/// Throws InputError for a name that no operation has.
void check_names(const std::set<std::string>& operations);

/// Registers the operations of the fake device, without those that it lacks
/// (install_device).
void add_kernels(const std::set<std::string>& lacks);

/// Notes that the host of the calling thread waits for the device (HostWait).
void note_host_wait();

}  // namespace longhaul::rehearsal
