#include "longhaul/system/cpus.h"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string>
#include <thread>

#include "longhaul/base/control_groups.h"
#include "longhaul/base/json.h"

namespace longhaul::system {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
/// The most CPUs for which a mask is tried, which is more than any machine has.
constexpr int kMostCpus = 1 << 16;

/// The most NUMA nodes that are looked for: more than any machine has.
constexpr int kMostNodes = 64;

/// Reads "QUOTA PERIOD" or "max PERIOD", in microseconds.
double quota_of(const std::string& text) {
  std::istringstream line(text);
  double quota = 0.0;
  double period = 0.0;
  return line >> quota >> period && quota > 0.0 && period > 0.0 ? quota / period
                                                                : kUnlimited;
}

double quota_v2(const fs::path& dir) { return quota_of(first_line(dir / "cpu.max")); }

double quota_v1(const fs::path& dir) {
  return quota_of(first_line(dir / "cpu.cfs_quota_us") + " " +
                  first_line(dir / "cpu.cfs_period_us"));
}

int at_least_one(double cpus) { return std::max(1, static_cast<int>(cpus + 1e-6)); }

}  // namespace

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  for (int most = 1024; most <= kMostCpus; most *= 2) {
    cpu_set_t* const set = CPU_ALLOC(most);
    const size_t bytes = CPU_ALLOC_SIZE(most);
    const bool known = ::sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; known && cpu < most; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (known) break;
  }
  if (cpus.empty()) {
    const auto all = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    for (int cpu = 0; cpu < all; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int> numa_nodes(const std::vector<int>& cpus, const fs::path& root) {
  std::vector<int> nodes;
  for (int node = 0; node < kMostNodes; ++node) {
    const std::string folder = "sys/devices/system/node/node" + std::to_string(node);
    const bool has_one = std::ranges::any_of(cpus, [&](int cpu) {
      return fs::exists(root / folder / ("cpu" + std::to_string(cpu)));
    });
    if (has_one) nodes.push_back(node);
  }
  return nodes;
}

int numa_node_of(std::string pci_address, const fs::path& root) {
  if (pci_address.empty()) return -1;
  // The system writes the digits of an address in lower case.
  std::ranges::transform(pci_address, pci_address.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  std::istringstream line(
      first_line(root / "sys/bus/pci/devices" / pci_address / "numa_node"));
  int node = -1;
  return line >> node ? node : -1;
}

double cpu_quota(const fs::path& root) {
  double least = kUnlimited;
  for (const fs::path& group : control_groups("cpu", root)) {
    least = std::min({least, quota_v2(group), quota_v1(group)});
  }
  return least;
}

int usable_cpus() { return share_of_cpus({CpuAllowance::of_this_process()}, 0); }

std::string CpuAllowance::to_text() const {
  const bool limited = quota < kUnlimited;
  return json_text(Json{{"cpus", cpus}, {"quota", limited ? Json(quota) : Json()}});
}

CpuAllowance CpuAllowance::from_text(const std::string& text) {
  const Json json = parse_json(text, "CPUs of a process");
  const Json& quota = json.at("quota");
  return {json.at("cpus").get<std::vector<int>>(),
          quota.is_null() ? kUnlimited : quota.get<double>()};
}

int share_of_cpus(const std::vector<CpuAllowance>& processes, size_t mine) {
  double share = 0.0;
  for (const int cpu : processes.at(mine).cpus) {
    share += 1.0 / static_cast<double>(std::ranges::count_if(
                       processes, [cpu](const CpuAllowance& process) {
                         return std::ranges::count(process.cpus, cpu) > 0;
                       }));
  }
  const double quota = processes[mine].quota / static_cast<double>(processes.size());
  return at_least_one(std::min(share, quota));
}

}  // namespace longhaul::system
