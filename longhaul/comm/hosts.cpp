#include "longhaul/comm/hosts.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <utility>
#include <vector>

#include "longhaul/base/process.h"

namespace longhaul::comm {

std::string machine_name() {
  if (const char* pretended = std::getenv("LONGHAUL_NODE_NAME")) return pretended;
  std::string boot_id;  // empty if the kernel has no boot id
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  return host_name() + " " + boot_id;
}

int64_t count_machines(Communicator& group) {
  const std::vector<std::string> machines = group.gather_strings(machine_name());
  return std::ssize(std::set<std::string>(machines.begin(), machines.end()));
}

std::unique_ptr<Communicator> split_by_host(Communicator& group, std::string name,
                                            const std::string& machine) {
  const std::vector<std::string> machines = group.gather_strings(machine);
  // A machine's colour is its lowest rank.
  const auto first = std::find(machines.begin(), machines.end(), machine);
  return group.split(static_cast<int>(first - machines.begin()), group.rank(),
                     std::move(name));
}

}  // namespace longhaul::comm
