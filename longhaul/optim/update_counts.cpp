#include "longhaul/optim/update_counts.h"

#include <fmt/format.h>

#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::optim {

UpdateCounts::UpdateCounts(int64_t updates, std::map<std::string, int64_t> fewer)
    : updates_(updates), fewer_(std::move(fewer)) {
  for (const auto& [name, count] : fewer_) {
    if (count >= 0 && count <= updates_) continue;
    fail_input("checkpoint", "{} has had {} updates, of {} that the run has made", name,
               count, updates_);
  }
  keep_fewer();
}

int64_t UpdateCounts::of(const std::string& parameter) const {
  const auto found = fewer_.find(parameter);
  return found == fewer_.end() ? updates_ : found->second;
}

void UpdateCounts::count(const std::set<std::string>& frozen) {
  for (const std::string& name : frozen) fewer_.emplace(name, updates_);
  ++updates_;
  for (auto& [name, count] : fewer_) {
    if (!frozen.contains(name)) ++count;
  }
}

void UpdateCounts::begin_anew(const std::set<std::string>& parameters) {
  for (const std::string& name : parameters) fewer_[name] = 0;
  keep_fewer();
}

void UpdateCounts::keep_fewer() {
  std::erase_if(fewer_, [&](const auto& entry) { return entry.second == updates_; });
}

Json UpdateCounts::fewer_to_json() const {
  std::map<int64_t, Json> by_count;
  for (const auto& [name, count] : fewer_) by_count[count].push_back(name);
  Json groups = Json::array();
  for (auto& [count, names] : by_count) {
    groups.push_back({{"updates", count}, {"parameters", std::move(names)}});
  }
  return groups;
}

UpdateCounts UpdateCounts::from_json(int64_t updates, const Json& fewer) {
  std::map<std::string, int64_t> counts;
  for (const Json& group : fewer) {
    for (const Json& name : group.at("parameters")) {
      counts[name.get<std::string>()] = group.at("updates").get<int64_t>();
    }
  }
  return UpdateCounts(updates, std::move(counts));
}

}  // namespace longhaul::optim
