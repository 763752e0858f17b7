#include "longhaul/doctor/doctor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/comm/mesh.h"
#include "longhaul/doctor/links.h"
#include "longhaul/system/cpus.h"
#include "longhaul/system/isa.h"

namespace longhaul::doctor {
namespace {

using cluster::HealthCheck;
using cluster::HealthReport;

constexpr const char* kProgram = "/proc/self/exe";
/// The share by which a node's memory may be below the median: machines of one kind
/// differ a little in the memory that their firmware keeps.
constexpr double kMemoryTolerance = 0.1;

/// What one node says of itself. One rank of each node sends it to the other nodes.
struct NodeFacts {
  std::string version;
  std::string libraries;
  bool computes = true;
  std::string instructions;
  std::string program;  ///< hash of the program's file
  int64_t cores = 0;
  double memory_bytes = 0.0;
  int64_t gpus = 0;
  Json health;  ///< HealthReport::to_json()
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeFacts, version, libraries, computes, instructions,
                                   program, cores, memory_bytes, gpus, health)

uint64_t total_memory() {
  const uint64_t pages = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES));
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// Returns the instruction set of this program's kernels, and why AMX is not used.
std::string instructions_of_this_node() {
  const char* why = system::amx_refusal();
  return why == nullptr ? std::string(system::isa_name(system::best_isa()))
                        : fmt::format("{}; AMX is not used: {}",
                                      system::isa_name(system::best_isa()), why);
}

NodeFacts facts_of_this_node(const DoctorOptions& options, const HealthReport& report) {
  int64_t gpus = 0;
  for (const HealthCheck& check : report.checks) {
    if (check.values.contains("devices")) {
      gpus = static_cast<int64_t>(check.values.at("devices").size());
    }
  }
  const MappedFile program{kProgram};
  return {.version = options.version,
          .libraries = options.libraries,
          .computes = options.computes,
          .instructions = instructions_of_this_node(),
          .program = hash_hex(program.bytes()),
          .cores = static_cast<int64_t>(system::allowed_cpus().size()),
          .memory_bytes = static_cast<double>(total_memory()),
          .gpus = gpus,
          .health = report.to_json()};
}

HealthCheck named(std::string name, HealthCheck check = {}) {
  check.name = std::move(name);
  return check;
}

/// Returns a check that fails if a node has another value than most nodes. `advice` ends
/// the check's line.
HealthCheck all_alike(const std::string& name, const std::vector<std::string>& nodes,
                      const std::vector<std::string>& values, const std::string& advice) {
  std::map<std::string, int> counts;
  for (const std::string& value : values) ++counts[value];
  const std::string& most = std::ranges::max_element(counts, {}, [](const auto& entry) {
                              return entry.second;
                            })->first;
  std::string others;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != most) others += fmt::format("{} has {}, ", nodes[i], values[i]);
  }
  HealthCheck check;
  check.text = most;
  if (!others.empty()) {
    check = HealthCheck::failed(fmt::format("{}the others {}; {}", others, most, advice));
  }
  return named(name, std::move(check));
}

HealthCheck check_memories(const std::vector<std::string>& nodes,
                           const std::vector<NodeFacts>& facts) {
  std::vector<double> sizes;
  for (const NodeFacts& node : facts) sizes.push_back(node.memory_bytes);
  std::ranges::sort(sizes);
  const double median = sizes[sizes.size() / 2];
  std::string small;
  for (size_t i = 0; i < facts.size(); ++i) {
    if (facts[i].memory_bytes >= (1.0 - kMemoryTolerance) * median) continue;
    small +=
        fmt::format("{} has only {}, ", nodes[i], human_bytes(facts[i].memory_bytes));
  }
  HealthCheck check;
  check.text = fmt::format("{} a node", human_bytes(median));
  if (!small.empty()) {
    check = HealthCheck::failed(
        fmt::format("{}the others {}; look for a memory module that is not seen", small,
                    human_bytes(median)));
  }
  return named("memory", std::move(check));
}

/// Adds checks that compare the facts of all nodes.
void compare(const std::vector<std::string>& nodes, const std::vector<NodeFacts>& facts,
             std::vector<HealthCheck>& together) {
  const auto alike = [&](const char* name, const char* advice, const auto& value) {
    std::vector<std::string> values;
    for (const NodeFacts& node : facts) values.push_back(value(node));
    together.push_back(all_alike(name, nodes, values, advice));
  };
  alike("version", "install one version on all nodes",
        [](const NodeFacts& node) { return node.version; });
  alike("libraries", "install the same libraries on all nodes",
        [](const NodeFacts& node) { return node.libraries; });
  std::string broken;
  for (size_t i = 0; i < facts.size(); ++i) {
    if (facts[i].computes) continue;
    broken += fmt::format("{}{}: train, bench, eval and generate cannot start ({})",
                          broken.empty() ? "" : ", ", nodes[i], facts[i].libraries);
  }
  if (!broken.empty()) {
    together.back() = named("libraries", HealthCheck::failed(std::move(broken)));
  }
  alike("program", "start the same file on all nodes",
        [](const NodeFacts& node) { return node.program.substr(0, 12); });
  alike("instructions", "use one kind of CPU, and one kernel and container",
        [](const NodeFacts& node) { return node.instructions; });
  alike("cores", "look at the node, or at how its ranks were bound to cores",
        [](const NodeFacts& node) { return fmt::format("{} cores", node.cores); });
  together.push_back(check_memories(nodes, facts));
  alike("devices", "look for a device that is not seen (nvidia-smi)",
        [](const NodeFacts& node) { return fmt::format("{} GPUs", node.gpus); });
}

/// Returns the check of the slowest group, for which a step would wait, or a check that
/// has failed. Collective over `world`.
HealthCheck slowest(comm::Communicator& world, const HealthCheck& mine) {
  HealthCheck worst = mine;
  double longest = -1.0;
  for (const std::string& text : world.gather_strings(json_text(Json(mine)))) {
    auto other = parse_json(text, "another rank's all_reduce").get<HealthCheck>();
    const double seconds = other.has_failed() ? 1e9 : other.values.value("seconds", 0.0);
    if (seconds <= longest) continue;
    longest = seconds;
    worst = std::move(other);
  }
  return worst;
}

/// Runs an all-reduce in the groups of each axis of the run's layout. Collective over
/// `world`.
void try_axes(const std::shared_ptr<comm::Communicator>& world,
              const DoctorOptions& options, std::vector<HealthCheck>& together) {
  const ParallelSection& wanted = *options.parallel;
  const int64_t model = wanted.tp * wanted.pp * wanted.cp;
  if (model <= 0 || world->size() % model != 0) {
    together.push_back(
        named("axes", HealthCheck::failed(fmt::format(
                          "tp {} x pp {} x cp {} does not divide {} ranks; start a "
                          "multiple of {}, or change [parallel]",
                          wanted.tp, wanted.pp, wanted.cp, world->size(), model))));
    return;
  }
  const layout::MeshShape shape{static_cast<int>(wanted.pp),
                                static_cast<int>(world->size() / model),
                                static_cast<int>(wanted.cp), static_cast<int>(wanted.tp)};
  const comm::Mesh mesh(world, shape);
  for (comm::Communicator* axis : {&mesh.tp(), &mesh.cp(), &mesh.dp(), &mesh.pp()}) {
    if (axis->size() == 1) continue;
    together.push_back(
        slowest(*world, check_all_reduce(*axis, "axis " + axis->name(), options.quick)));
  }
}

/// Runs all-reduces in groups within nodes, between nodes and along the layout's axes.
/// `leaders` is null on a rank that leads no node. Collective over `world`.
void try_groups(const std::shared_ptr<comm::Communicator>& world,
                comm::Communicator& node, NodeLeaders* leaders, bool several_nodes,
                const DoctorOptions& options, std::vector<HealthCheck>& together) {
  if (world->size() == 1) return;
  // A node with a single rank has nothing to exchange inside the node.
  const bool several_inside = world->any(node.size() > 1);
  if (several_inside) {
    HealthCheck inside = named("inside a node");
    if (node.size() > 1) inside = check_all_reduce(node, inside.name, options.quick);
    together.push_back(slowest(*world, inside));
  }
  if (several_nodes) {
    HealthCheck between = named("between nodes");
    if (leaders != nullptr) {
      between = check_all_reduce(leaders->group, between.name, options.quick);
    }
    together.push_back(slowest(*world, between));
  }
  std::vector<HealthCheck> of_devices;
  if (world->any(options.try_devices != nullptr)) {
    if (world->any(options.try_devices == nullptr)) {
      of_devices = {
          named("run.device",
                HealthCheck::failed("some nodes have GPUs for run.device and some "
                                    "have none; look for a node that is another"))};
    } else {
      of_devices = options.try_devices(*world, node);
    }
  }
  if (of_devices.empty() && options.parallel) try_axes(world, options, together);
  std::ranges::move(of_devices, std::back_inserter(together));
}

}  // namespace

DoctorReport examine(const std::shared_ptr<comm::Communicator>& world,
                     const DoctorOptions& options,
                     const std::optional<HealthReport>& own) {
  const auto node = comm::split_by_host(*world, "node", options.machine);
  // The lowest rank with a report leads its node; if no rank has one, the lowest rank
  // does.
  const bool checked = node->any(own.has_value());
  const std::vector<std::string> reported = node->gather_strings(own ? "1" : "");
  const auto speaker = std::ranges::find(reported, "1") - reported.begin();
  const bool leads = checked ? node->rank() == speaker : node->rank() == 0;
  const auto group = world->split(leads ? 0 : 1, world->rank(), "leaders");

  DoctorReport report;
  report.ranks = world->size();
  std::string result;
  std::optional<NodeLeaders> leaders;
  if (leads) {
    HealthReport mine = own ? *own : cluster::check_node(options.health);
    mine.node = options.machine.substr(0, options.machine.find(' '));
    Json nodes = Json::array();
    std::vector<NodeFacts> facts;
    std::vector<std::string> names;
    for (const std::string& text :
         group->gather_strings(json_text(Json(facts_of_this_node(options, mine))))) {
      facts.push_back(
          parse_json(text, "what another node says of itself").get<NodeFacts>());
      names.push_back(facts.back().health.at("node").get<std::string>());
      nodes.push_back(facts.back().health);
    }
    leaders.emplace(NodeLeaders{*group, names});
    compare(names, facts, report.together);
    if (group->size() > 1) {
      report.together.push_back(check_skew(*leaders, options));
      for (const fs::path& directory : options.directories) {
        report.together.push_back(check_shared(*leaders, directory, options));
      }
    }
    result = json_text(Json({{"nodes", nodes}, {"together", report.together}}));
  }
  // World rank 0 need not be a leader: the first leader's result goes to all ranks.
  int first = 0;
  const std::vector<std::string> who = world->gather_strings(leads ? "1" : "");
  while (who[static_cast<size_t>(first)].empty()) ++first;
  const Json all =
      parse_json(world->broadcast_string(result, first), "the nodes' reports");
  for (const Json& one : all.at("nodes")) {
    report.nodes.push_back(HealthReport::from_json(one));
  }
  all.at("together").get_to(report.together);
  try_groups(world, *node, leaders ? &*leaders : nullptr, report.nodes.size() > 1,
             options, report.together);
  return report;
}

bool DoctorReport::ok() const {
  return std::ranges::all_of(nodes, &HealthReport::ok) &&
         std::ranges::none_of(together, &HealthCheck::has_failed);
}

Json DoctorReport::to_json() const {
  Json list = Json::array();
  for (const HealthReport& node : nodes) list.push_back(node.to_json());
  return {
      {"ok", ok()}, {"ranks", ranks}, {"nodes", std::move(list)}, {"together", together}};
}

std::vector<std::string> DoctorReport::lines() const {
  std::vector<std::string> lines;
  for (const HealthReport& node : nodes) {
    lines.push_back(node.node + ":");
    for (const std::string& line : node.lines()) lines.push_back("  " + line);
  }
  lines.push_back(fmt::format("{} on {}:", counted(ranks, "rank"),
                              counted(static_cast<int64_t>(nodes.size()), "node")));
  for (const std::string& line : cluster::check_lines(together)) {
    lines.push_back("  " + line);
  }
  return lines;
}

}  // namespace longhaul::doctor
