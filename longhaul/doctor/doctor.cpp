#include "longhaul/doctor/doctor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/cluster/health/health_compute.h"
#include "longhaul/comm/mesh.h"
#include "longhaul/doctor/links.h"
#include "longhaul/system/isa.h"

namespace longhaul::doctor {
namespace {

using cluster::HealthCheck;
using cluster::HealthReport;
using cluster::HealthResult;

constexpr const char* kProgram = "/proc/self/exe";
/// Machines of one kind differ a little in what firmware keeps.
constexpr double kMemoryTolerance = 0.1;

/// What one node says of itself; the ranks of a node send it once.
struct NodeFacts {
  std::string version;
  std::string libraries;
  bool computes = true;
  std::string instructions;
  std::string program;  ///< hash of the program's file
  int64_t cores = 0;
  double memory_bytes = 0.0;
  int64_t gpus = 0;
};

uint64_t total_memory() {
  const uint64_t pages = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES));
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// The instruction set of our kernels, and what could be better.
std::string instructions_of_this_node() {
  const char* why = amx_refusal();
  return why == nullptr
             ? std::string(isa_name(best_isa()))
             : fmt::format("{}; AMX is not used: {}", isa_name(best_isa()), why);
}

Json facts_of_this_node(const DoctorOptions& options, const HealthReport& report) {
  int64_t gpus = 0;
  for (const HealthCheck& check : report.checks) {
    if (check.values.contains("devices")) {
      gpus = static_cast<int64_t>(check.values.at("devices").size());
    }
  }
  const MappedFile program{kProgram};
  return {{"version", options.version},
          {"libraries", options.libraries},
          {"computes", options.computes},
          {"instructions", instructions_of_this_node()},
          {"program", hash_hex(program.bytes())},
          {"cores", cluster::usable_cores().size()},
          {"memory_bytes", static_cast<double>(total_memory())},
          {"gpus", gpus},
          {"health", report.to_json()}};
}

NodeFacts facts_from(const Json& json) {
  return {
      json.at("version").get<std::string>(), json.at("libraries").get<std::string>(),
      json.at("computes").get<bool>(),       json.at("instructions").get<std::string>(),
      json.at("program").get<std::string>(), json.at("cores").get<int64_t>(),
      json.at("memory_bytes").get<double>(), json.at("gpus").get<int64_t>()};
}

HealthCheck named(std::string name) {
  HealthCheck check;
  check.name = std::move(name);
  return check;
}

/// Says which nodes have another value than most; `advice` ends the line.
HealthCheck all_alike(const std::string& name, const std::vector<std::string>& nodes,
                      const std::vector<std::string>& values, const std::string& advice) {
  std::map<std::string, int> counts;
  for (const std::string& value : values) ++counts[value];
  const auto most = std::ranges::max_element(
      counts, {}, [](const auto& entry) { return entry.second; });
  HealthCheck check = named(name);
  check.text = most->first;
  if (counts.size() == 1) return check;
  check.result = HealthResult::Failed;
  check.text.clear();
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == most->first) continue;
    check.text += fmt::format("{} has {}, ", nodes[i], values[i]);
  }
  check.text += fmt::format("the others {}; {}", most->first, advice);
  return check;
}

HealthCheck check_memories(const std::vector<std::string>& nodes,
                           const std::vector<NodeFacts>& facts) {
  HealthCheck check = named("memory");
  std::vector<double> sizes;
  for (const NodeFacts& node : facts) sizes.push_back(node.memory_bytes);
  std::ranges::sort(sizes);
  const double median = sizes[sizes.size() / 2];
  check.text = fmt::format("{} a node", human_bytes(median));
  std::string small;
  for (size_t i = 0; i < facts.size(); ++i) {
    if (facts[i].memory_bytes >= (1.0 - kMemoryTolerance) * median) continue;
    small +=
        fmt::format("{} has only {}, ", nodes[i], human_bytes(facts[i].memory_bytes));
  }
  if (!small.empty()) {
    check.result = HealthResult::Failed;
    check.text = fmt::format("{}the others {}; look for a memory module that is not seen",
                             small, human_bytes(median));
  }
  return check;
}

HealthCheck check_libraries(const std::vector<std::string>& nodes,
                            const std::vector<NodeFacts>& facts) {
  HealthCheck check = named("libraries");
  std::vector<std::string> values;
  for (size_t i = 0; i < facts.size(); ++i) {
    values.push_back(facts[i].libraries);
    if (facts[i].computes) continue;
    check.result = HealthResult::Failed;
    if (!check.text.empty()) check.text += ", ";
    check.text += fmt::format("{}: train, bench, eval and generate cannot start ({})",
                              nodes[i], facts[i].libraries);
  }
  if (check.result == HealthResult::Failed) return check;
  return all_alike("libraries", nodes, values, "install the same on all nodes");
}

void compare(const std::vector<std::string>& nodes, const std::vector<NodeFacts>& facts,
             std::vector<HealthCheck>& together) {
  const auto values = [&](const auto& value) {
    std::vector<std::string> list;
    for (const NodeFacts& node : facts) list.push_back(value(node));
    return list;
  };
  together.push_back(all_alike("version", nodes,
                               values([](const NodeFacts& node) { return node.version; }),
                               "install one version on all nodes"));
  together.push_back(check_libraries(nodes, facts));
  HealthCheck program =
      all_alike("program", nodes,
                values([](const NodeFacts& node) { return node.program.substr(0, 12); }),
                "start the same file on all nodes");
  together.push_back(std::move(program));
  together.push_back(all_alike("instructions", nodes, values([](const NodeFacts& node) {
                                 return node.instructions;
                               }),
                               "use one kind of CPU, and one kernel and container"));
  together.push_back(all_alike(
      "cores", nodes,
      values([](const NodeFacts& node) { return fmt::format("{} cores", node.cores); }),
      "look at the node, or at how its ranks were bound to cores"));
  together.push_back(check_memories(nodes, facts));
  together.push_back(all_alike("devices", nodes, values([](const NodeFacts& node) {
                                 return fmt::format("{} GPUs", node.gpus);
                               }),
                               "look for a device that is not seen (nvidia-smi)"));
}

/// The slowest group's figures, which are the ones that a step waits for; failures first.
HealthCheck slowest(comm::Communicator& world, const HealthCheck& mine) {
  const Json json = {{"failed", mine.result == HealthResult::Failed},
                     {"text", mine.text},
                     {"values", mine.values}};
  HealthCheck worst = mine;
  double seconds = -1.0;
  for (const std::string& text : world.gather_strings(json_text(json))) {
    const Json other = parse_json(text, "another rank's all_reduce");
    const bool failed = other.at("failed").get<bool>();
    const double took = failed ? 1e9 : other.at("values").value("seconds", 0.0);
    if (took <= seconds) continue;
    seconds = took;
    worst.result = failed ? HealthResult::Failed : HealthResult::Ok;
    worst.text = other.at("text").get<std::string>();
    worst.values = other.at("values");
  }
  return worst;
}

void try_axes(const std::shared_ptr<comm::Communicator>& world,
              const DoctorOptions& options, std::vector<HealthCheck>& together) {
  const ParallelSection& wanted = *options.parallel;
  const int64_t model = wanted.tp * wanted.pp * wanted.cp;
  if (model <= 0 || world->size() % model != 0) {
    HealthCheck check = named("axes");
    check.result = HealthResult::Failed;
    check.text = fmt::format(
        "tp {} x pp {} x cp {} does not divide {} ranks; start a "
        "multiple of {}, or change [parallel]",
        wanted.tp, wanted.pp, wanted.cp, world->size(), model);
    together.push_back(std::move(check));
    return;
  }
  const MeshShape shape{static_cast<int>(wanted.pp),
                        static_cast<int>(world->size() / model),
                        static_cast<int>(wanted.cp), static_cast<int>(wanted.tp)};
  const comm::Mesh mesh(world, shape);
  for (comm::Communicator* axis : {&mesh.tp(), &mesh.cp(), &mesh.dp(), &mesh.pp()}) {
    if (axis->size() == 1) continue;
    together.push_back(
        slowest(*world, check_all_reduce(*axis, "axis " + axis->name(), options.quick)));
  }
}

void try_groups(const std::shared_ptr<comm::Communicator>& world,
                comm::Communicator& node, NodeLeaders* leaders, bool several_nodes,
                const DoctorOptions& options, std::vector<HealthCheck>& together) {
  if (world->size() == 1) return;
  // Nodes with one rank have nothing to say of their inside.
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
  if (options.parallel) try_axes(world, options, together);
}

Json check_json(const std::vector<HealthCheck>& checks) {
  HealthReport carrier;
  carrier.checks = checks;
  return carrier.to_json().at("checks");
}

}  // namespace

DoctorReport examine(const std::shared_ptr<comm::Communicator>& world,
                     const DoctorOptions& options,
                     const std::optional<HealthReport>& own) {
  const auto node = comm::split_by_host(*world, "node", options.machine);
  // The lowest rank with a report speaks for the node.
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
    Json json = Json::array();
    std::vector<NodeFacts> facts;
    std::vector<std::string> names;
    for (const std::string& text :
         group->gather_strings(json_text(facts_of_this_node(options, mine)))) {
      const Json one = parse_json(text, "what another node says of itself");
      facts.push_back(facts_from(one));
      names.push_back(one.at("health").at("node").get<std::string>());
      json.push_back(one.at("health"));
    }
    leaders.emplace(NodeLeaders{*group, names});
    compare(names, facts, report.together);
    if (group->size() > 1) {
      report.together.push_back(check_skew(*leaders, options));
      for (const fs::path& directory : options.directories) {
        report.together.push_back(check_shared(*leaders, directory, options));
      }
    }
    result =
        json_text(Json({{"nodes", json}, {"together", check_json(report.together)}}));
  }
  // World rank 0 need not be a leader: the first leader's word goes to all.
  int first = 0;
  const std::vector<std::string> who = world->gather_strings(leads ? "1" : "");
  while (who[static_cast<size_t>(first)].empty()) ++first;
  const Json all =
      parse_json(world->broadcast_string(result, first), "the nodes' reports");
  for (const Json& one : all.at("nodes")) {
    report.nodes.push_back(HealthReport::from_json(one));
  }
  report.together = HealthReport::from_json(
                        {{"node", ""}, {"time", 0.0}, {"checks", all.at("together")}})
                        .checks;
  try_groups(world, *node, leaders ? &*leaders : nullptr, report.nodes.size() > 1,
             options, report.together);
  return report;
}

bool DoctorReport::ok() const {
  return std::ranges::all_of(nodes, [](const HealthReport& node) { return node.ok(); }) &&
         std::ranges::none_of(together, [](const HealthCheck& check) {
           return check.result == HealthResult::Failed;
         });
}

Json DoctorReport::to_json() const {
  Json list = Json::array();
  for (const HealthReport& node : nodes) list.push_back(node.to_json());
  return {{"ok", ok()},
          {"ranks", ranks},
          {"nodes", std::move(list)},
          {"together", check_json(together)}};
}

std::vector<std::string> DoctorReport::lines() const {
  std::vector<std::string> lines;
  for (const HealthReport& node : nodes) {
    lines.push_back(node.node + ":");
    for (const std::string& line : node.lines()) lines.push_back("  " + line);
  }
  HealthReport carrier;
  carrier.checks = together;
  lines.push_back(fmt::format("{} {} on {} {}:", ranks, ranks == 1 ? "rank" : "ranks",
                              nodes.size(), nodes.size() == 1 ? "node" : "nodes"));
  for (const std::string& line : carrier.lines()) lines.push_back("  " + line);
  return lines;
}

}  // namespace longhaul::doctor
