#include "longhaul/doctor/ways.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/comm/agree.h"

namespace longhaul::doctor {
namespace {

using cluster::HealthCheck;
using cluster::HealthResult;

constexpr std::string_view kVia = " via ";
constexpr const char* kSockets = "NET/Socket";

/// Returns the way of a text such as "NET/IB/3/GDRDMA/Shared" or "P2P/IPC/read".
std::string way_of(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, '/');
  std::string way(parts.front());
  if (parts.size() == 1 || (way != "NET" && way != "P2P")) return way;
  way += fmt::format("/{}", parts[1]);
  const bool direct = std::ranges::any_of(
      parts, [](std::string_view part) { return part.starts_with("GDRDMA"); });
  return direct ? way + "/GDRDMA" : way;
}

std::string numa_text(const NumaPlace& place) {
  return fmt::format(
      "cores of {}, device {}",
      place.cores.empty() ? "no known node"
                          : fmt::format("node {}", fmt::join(place.cores, ",")),
      place.device < 0 ? "at no known node" : fmt::format("at node {}", place.device));
}

}  // namespace

std::set<std::string> ways_in(std::string_view log) {
  std::set<std::string> ways;
  for (const std::string_view line : lines_of(log)) {
    const size_t via = line.rfind(kVia);
    if (via == std::string_view::npos || line.substr(0, via).find(" -> ") == line.npos) {
      continue;
    }
    ways.insert(way_of(line.substr(via + kVia.size())));
  }
  return ways;
}

std::vector<std::string> rdma_devices(const fs::path& root) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(root / "sys/class/infiniband", none)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

HealthCheck check_ways(comm::Communicator& world, std::string_view log,
                       const std::vector<std::string>& fabric) {
  std::set<std::string> ways;
  std::set<std::string> unused;  // devices of machines whose ranks take sockets
  for (const std::string& text : comm::distinct_texts(
           world, json_text(Json{{"ways", ways_in(log)}, {"fabric", fabric}}))) {
    const Json of_rank = parse_json(text, "a rank's ways");
    const auto taken = of_rank.at("ways").get<std::set<std::string>>();
    ways.insert(taken.begin(), taken.end());
    if (taken.contains(kSockets)) {
      for (const Json& name : of_rank.at("fabric")) unused.insert(name);
    }
  }
  HealthCheck check;
  check.name = "ways";
  check.text = fmt::format("{}", fmt::join(ways, ", "));
  check.values = {{"ways", ways}};
  if (ways.empty()) {
    check.result = HealthResult::Skipped;
    check.text =
        "the library of collectives has named none in its log; for NCCL leave NCCL_DEBUG "
        "and NCCL_DEBUG_FILE out";
  } else if (!unused.empty()) {
    check.result = HealthResult::Warning;
    check.text += fmt::format(
        "; ranks take sockets, though their machine has {}: install the network's "
        "plug-in where NCCL finds it (aws-ofi-nccl for EFA), and leave NCCL_NET and "
        "NCCL_IB_DISABLE out",
        fmt::join(unused, ", "));
  }
  return check;
}

HealthCheck check_numa(comm::Communicator& world, const NumaPlace& mine) {
  std::map<std::string, std::vector<size_t>> ranks_of;
  std::string far;
  const std::vector<std::string> all = world.gather_strings(
      json_text(Json{{"cores", mine.cores}, {"device", mine.device}}));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const Json told = parse_json(all[rank], "a rank's place");
    const NumaPlace place{told.at("cores").get<std::vector<int>>(),
                          told.at("device").get<int>()};
    ranks_of[numa_text(place)].push_back(rank);
    const bool beside =
        place.device < 0 || std::ranges::count(place.cores, place.device) > 0;
    if (!beside) far += fmt::format("{}{}", far.empty() ? "" : ", ", rank);
  }
  HealthCheck check;
  check.name = "numa";
  for (const auto& [text, ranks] : ranks_of) {
    check.text +=
        fmt::format("{}{} {}: {}", check.text.empty() ? "" : "; ",
                    ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ","), text);
    check.values[text] = ranks;
  }
  if (!far.empty()) {
    check.result = HealthResult::Warning;
    check.text += fmt::format(
        "; no core of rank {} is at its device's node: bind each rank to the node of its "
        "device, or bind none",
        far);
  }
  return check;
}

}  // namespace longhaul::doctor
