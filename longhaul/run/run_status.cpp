#include "longhaul/run/run_status.h"

#include "longhaul/base/lenient_json.h"

namespace longhaul {
namespace {

template <typename Item>
Json list_of(const std::vector<Item>& items) {
  Json list = Json::array();
  for (const Item& item : items) list.push_back(item.to_json());
  return list;
}

/// Reads what is written below, and what others write.
class Reader {
 public:
  explicit Reader(const RunStatus::Text& text) : text_(text) {}

  std::string text_at(const Json& object, const char* key, size_t longest) const {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_string()) return {};
    return text_(found->get_ref<const std::string&>(), longest);
  }

  RunStatus::Device device(const Json& json) const {
    return {text_at(json, "name", 60), integer_at(json, "memory_used_bytes"),
            integer_at(json, "memory_total_bytes"), number_at(json, "busy", -1.0)};
  }

  RunStatus::Node node(const Json& json) const {
    RunStatus::Node node;
    node.name = text_at(json, "name", 100);
    node.state = text_at(json, "state", 20);
    if (const auto ranks = json.find("ranks"); ranks != json.end() && ranks->is_array()) {
      for (const Json& rank : *ranks) {
        if (rank.is_number_integer()) node.ranks.push_back(rank.get<int64_t>());
      }
    }
    node.memory_used_bytes = integer_at(json, "memory_used_bytes");
    node.memory_total_bytes = integer_at(json, "memory_total_bytes");
    node.cpu_busy = number_at(json, "cpu_busy", -1.0);
    node.devices = list_at(json, "devices", &Reader::device);
    return node;
  }

  RunStatus::Rank rank(const Json& json) const {
    RunStatus::Rank rank;
    rank.rank = integer_at(json, "rank");
    rank.node = text_at(json, "node", 100);
    rank.process = integer_at(json, "pid");
    rank.coordinates = text_at(json, "coordinates", 60);
    rank.phase = text_at(json, "phase", 40);
    rank.step = integer_at(json, "step");
    rank.busy_seconds = number_at(json, "busy_seconds");
    rank.wall_seconds = number_at(json, "wall_seconds");
    rank.waits_for = text_at(json, "waits_for", 200);
    rank.waits_seconds = number_at(json, "waits_seconds");
    rank.process_state = text_at(json, "process", 20);
    return rank;
  }

  /// The members of a list that are objects.
  template <typename Item>
  std::vector<Item> list_at(const Json& object, const char* key,
                            Item (Reader::*parse)(const Json&) const) const {
    std::vector<Item> items;
    const auto found = object.find(key);
    if (found == object.end() || !found->is_array()) return items;
    for (const Json& item : *found) {
      if (item.is_object()) items.push_back((this->*parse)(item));
    }
    return items;
  }

 private:
  const RunStatus::Text& text_;
};

}  // namespace

Json RunStatus::Device::to_json() const {
  return {{"name", name},
          {"memory_used_bytes", memory_used_bytes},
          {"memory_total_bytes", memory_total_bytes},
          {"busy", busy}};
}

Json RunStatus::Node::to_json() const {
  return {{"name", name},
          {"state", state},
          {"ranks", ranks},
          {"memory_used_bytes", memory_used_bytes},
          {"memory_total_bytes", memory_total_bytes},
          {"cpu_busy", cpu_busy},
          {"devices", list_of(devices)}};
}

Json RunStatus::Rank::to_json() const {
  return {{"rank", rank},
          {"node", node},
          {"pid", process},
          {"coordinates", coordinates},
          {"phase", phase},
          {"step", step},
          {"busy_seconds", busy_seconds},
          {"wall_seconds", wall_seconds},
          {"waits_for", waits_for},
          {"waits_seconds", waits_seconds},
          {"process", process_state}};
}

RunStatus::Device RunStatus::Device::from_json(const Json& json) {
  Device device;
  json.at("name").get_to(device.name);
  json.at("memory_used_bytes").get_to(device.memory_used_bytes);
  json.at("memory_total_bytes").get_to(device.memory_total_bytes);
  json.at("busy").get_to(device.busy);
  return device;
}

Json RunStatus::to_json() const {
  return {{"state", state},         {"since", since},
          {"updated", updated},     {"job", job},
          {"host", host},           {"pid", process},
          {"restarts", restarts},   {"max_restarts", max_restarts},
          {"cause", cause},         {"nodes", list_of(nodes)},
          {"ranks", list_of(ranks)}};
}

RunStatus RunStatus::from_json(const Json& json, const Text& text) {
  RunStatus status;
  if (!json.is_object()) return status;
  const Reader reader(text);
  status.state = reader.text_at(json, "state", 30);
  status.since = number_at(json, "since");
  status.updated = number_at(json, "updated");
  status.job = reader.text_at(json, "job", 60);
  status.host = reader.text_at(json, "host", 100);
  status.process = integer_at(json, "pid");
  status.restarts = integer_at(json, "restarts");
  status.max_restarts = integer_at(json, "max_restarts");
  status.cause = reader.text_at(json, "cause", 400);
  status.nodes = reader.list_at(json, "nodes", &Reader::node);
  status.ranks = reader.list_at(json, "ranks", &Reader::rank);
  return status;
}

}  // namespace longhaul
