#include "longhaul/monitor/run_status.h"

#include <cmath>

#include "longhaul/monitor/plain_text.h"

namespace longhaul::monitor {
namespace {

/// The members of a list that are objects.
template <typename Item, typename Parse>
std::vector<Item> list_at(const Json& object, const char* key, Parse parse) {
  std::vector<Item> items;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return items;
  for (const Json& item : *found) {
    if (item.is_object()) items.push_back(parse(item));
  }
  return items;
}

DeviceStatus parse_device(const Json& json) {
  return {text_at(json, "name", 60), number_at(json, "memory_used_bytes"),
          number_at(json, "memory_total_bytes"), number_at(json, "busy", -1.0)};
}

NodeStatus parse_node(const Json& json) {
  NodeStatus node;
  node.name = text_at(json, "name", 100);
  node.state = text_at(json, "state", 20);
  if (const auto ranks = json.find("ranks"); ranks != json.end() && ranks->is_array()) {
    for (const Json& rank : *ranks) {
      if (rank.is_number_integer()) node.ranks.push_back(rank.get<int64_t>());
    }
  }
  node.memory_used = number_at(json, "memory_used_bytes");
  node.memory_total = number_at(json, "memory_total_bytes");
  node.cpu_busy = number_at(json, "cpu_busy", -1.0);
  node.devices = list_at<DeviceStatus>(json, "devices", parse_device);
  return node;
}

RankStatus parse_rank(const Json& json) {
  RankStatus rank;
  rank.rank = integer_at(json, "rank");
  rank.node = text_at(json, "node", 100);
  rank.coordinates = text_at(json, "coordinates", 60);
  rank.phase = text_at(json, "phase", 40);
  rank.step = integer_at(json, "step");
  rank.busy_seconds = number_at(json, "busy_seconds");
  rank.wall_seconds = number_at(json, "wall_seconds");
  rank.waits_for = text_at(json, "waits_for", 200);
  rank.waits_seconds = number_at(json, "waits_seconds");
  return rank;
}

}  // namespace

double number_at(const Json& object, const char* key, double otherwise) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return otherwise;
  const auto number = found->get<double>();
  return std::isfinite(number) ? number : otherwise;
}

int64_t integer_at(const Json& object, const char* key, int64_t otherwise) {
  const double number = number_at(object, key, static_cast<double>(otherwise));
  return std::abs(number) <= 9e15 ? static_cast<int64_t>(number) : otherwise;
}

std::string text_at(const Json& object, const char* key, size_t longest) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return {};
  return plain_text(found->get_ref<const std::string&>(), longest);
}

RunStatus parse_status(const Json& json) {
  RunStatus status;
  if (!json.is_object()) return status;
  status.state = text_at(json, "state", 30);
  status.since = number_at(json, "since");
  status.updated = number_at(json, "updated");
  status.job = text_at(json, "job", 60);
  status.host = text_at(json, "host", 100);
  status.process = integer_at(json, "pid");
  status.restarts = integer_at(json, "restarts");
  status.max_restarts = integer_at(json, "max_restarts");
  status.cause = text_at(json, "cause");
  status.nodes = list_at<NodeStatus>(json, "nodes", parse_node);
  status.ranks = list_at<RankStatus>(json, "ranks", parse_rank);
  return status;
}

}  // namespace longhaul::monitor
