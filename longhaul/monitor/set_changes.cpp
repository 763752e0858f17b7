#include "longhaul/monitor/set_changes.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/json/lenient_json.h"
#include "longhaul/base/text.h"
#include "longhaul/monitor/plain_text.h"

namespace longhaul::monitor {
namespace {

constexpr size_t kLongestSetName = 60;

}  // namespace

std::string SetChange::describe() const {
  return fmt::format("{}{} {:+.4f} since step {}{}", name, stop_above ? " (old)" : "",
                     change(), grouped(first_step()),
                     stop_above ? fmt::format(", stops above +{:g}", *stop_above) : "");
}

std::vector<SetChange> set_changes(const RunFiles& run) {
  std::map<std::string, SetChange> sets;
  for (const ValidationRow& v : run.records().validations()) {
    if (!v.counts || v.of_task()) continue;
    SetChange& set = sets[v.name];
    set.name = plain_text(v.name, kLongestSetName);
    set.losses[v.step] = v.loss;
  }
  if (run.config()) {
    for (const ValidationSource& source : run.config()->data.validation) {
      const auto found = sets.find(source.name);
      if (found != sets.end()) found->second.stop_above = source.stop_above;
    }
  }
  std::vector<SetChange> changes;
  for (auto& [name, set] : sets) changes.push_back(std::move(set));
  std::ranges::stable_partition(
      changes, [](const SetChange& s) { return s.stop_above.has_value(); });
  return changes;
}

Json to_json(const std::vector<SetChange>& changes) {
  Json json = Json::array();
  for (const SetChange& set : changes) {
    json.push_back({{"name", set.name},
                    {"old", set.stop_above.has_value()},
                    {"stop_above", or_null(set.stop_above)},
                    {"first_step", set.first_step()},
                    {"first_loss", set.losses.begin()->second},
                    {"step", set.losses.rbegin()->first},
                    {"loss", set.losses.rbegin()->second},
                    {"change", set.change()}});
  }
  return json;
}

}  // namespace longhaul::monitor
