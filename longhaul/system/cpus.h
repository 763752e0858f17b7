#pragma once

#include <limits>
#include <string>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul {

/// The CPUs that this process may run on: its job's set. Never empty.
std::vector<int> allowed_cpus();

/// CPU seconds per second that the control groups of this process allow it and its
/// neighbours in them; infinite where nothing limits them. `root`: where /proc and /sys
/// are, for tests.
double cpu_quota(const fs::path& root = "/");

/// Threads that have a CPU each: what the CPU set and the control groups leave, at least
/// 1.
int usable_cpus();

/// What processes of one machine tell each other, so that each knows its share.
struct CpuAllowance {
  std::vector<int> cpus;
  double quota = std::numeric_limits<double>::infinity();

  static CpuAllowance of_this_process() { return {allowed_cpus(), cpu_quota()}; }
  /// For gather_strings, and back.
  std::string to_text() const;
  static CpuAllowance from_text(const std::string& text);
};

/// The threads of process `mine` of these: a CPU that n of them may use counts 1/n, and
/// its quota is shared by all. At least 1.
int share_of_cpus(const std::vector<CpuAllowance>& processes, size_t mine);

}  // namespace longhaul
