#pragma once

#include <limits>
#include <string>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::system {

/// Returns the CPUs that this process may run on, its job's set. There is at least one.
std::vector<int> allowed_cpus();

/// Returns the NUMA nodes that have some of these CPUs, ascending; empty where the system
/// tells of none. `root` is where /sys is, for tests.
std::vector<int> numa_nodes(const std::vector<int>& cpus, const fs::path& root = "/");

/// Returns the NUMA node of the PCI device with this address ("0000:1b:00.0"); -1 where
/// the address is empty or the system does not know.
int numa_node_of(std::string pci_address, const fs::path& root = "/");

/// Returns how many CPU seconds per second the control groups of this process allow it
/// and its neighbours in them; infinite if nothing limits them. `root` is where /proc and
/// /sys are, for tests.
double cpu_quota(const fs::path& root = "/");

/// Returns how many threads can have a CPU each, by the CPU set and the control groups;
/// at least 1.
int usable_cpus();
/// Returns the number of threads for work that was told to use `asked` threads; 0 stands
/// for usable_cpus().
inline int threads_of(int asked) { return asked > 0 ? asked : usable_cpus(); }

/// What processes of one machine tell each other, so that each knows its share.
struct CpuAllowance {
  std::vector<int> cpus;
  double quota = std::numeric_limits<double>::infinity();

  static CpuAllowance of_this_process() { return {allowed_cpus(), cpu_quota()}; }
  /// Converts to a text for gather_strings; from_text() reads it.
  std::string to_text() const;
  static CpuAllowance from_text(const std::string& text);
};

/// Returns how many threads process `mine` of these may have: a CPU that n processes may
/// use counts 1/n, and all share the quota. The result is at least 1.
int share_of_cpus(const std::vector<CpuAllowance>& processes, size_t mine);

}  // namespace longhaul::system
