#include "longhaul/train/history/history.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/run/saved_settings.h"

namespace longhaul::train {
namespace {

/// Returns whether a parameter that was updated has had fewer updates than the run. Only
/// then must an older program, which takes the run's updates for those of each parameter,
/// refuse the state.
bool has_own_counts(const History& history) {
  return history.counts &&
         std::ranges::any_of(history.counts->fewer(),
                             [](const auto& one) { return one.second > 0; });
}

Json to_json(const std::vector<data::SourceCount>& sources) {
  Json list = Json::array();
  for (const data::SourceCount& source : sources) {
    list.push_back({{"name", source.name},
                    {"fingerprint", source.fingerprint},
                    {"sequences", source.sequences},
                    {"tokens", source.tokens}});
  }
  return list;
}

std::vector<data::SourceCount> sources_from(const Json& list) {
  std::vector<data::SourceCount> sources;
  for (const Json& item : list) {
    sources.push_back(
        {item.at("name").get<std::string>(), item.at("fingerprint").get<std::string>(),
         item.at("sequences").get<int64_t>(), item.at("tokens").get<int64_t>()});
  }
  return sources;
}

}  // namespace

Json History::to_json() const {
  Json json = {
      {"version", has_own_counts(*this) ? run::kCountsVersion : run::kStateVersion},
      {"step", step},
      {"updates", updates},
      {"tokens", tokens},
      {"cursor", cursor.to_json()},
      {"batch_hash", fmt::format("{:016x}", batch_hash)},
      {"sources", train::to_json(sources)},
      {"guard", guard.to_json()},
      {"config", config_toml},
      {"padding_row", padding_row ? Json(*padding_row) : Json()},
      {"model", model},
      {"numerics", fingerprint}};
  if (!base.empty()) json["base"] = base;
  if (counts) json["fewer_updates"] = counts->fewer_to_json();
  if (!validation.empty()) json["validation"] = validation.to_json();
  if (schedule) json["schedule"] = schedule->to_json();
  if (!expert_loads.empty()) json["expert_counts"] = expert_loads;
  if (!reference.empty()) json["reference"] = reference;
  return json;
}

History History::from_json(const Json& json) {
  try {
    run::check_state_version(json);
    History h;
    h.step = json.at("step").get<int64_t>();
    h.updates = json.at("updates").get<int64_t>();
    // Checkpoints of older programs do not say which parameters were frozen.
    if (json.contains("fewer_updates")) {
      h.counts = optim::UpdateCounts::from_json(h.updates, json["fewer_updates"]);
    }
    h.tokens = json.at("tokens").get<int64_t>();
    h.cursor = data::Cursor::from_json(json.at("cursor"));
    h.batch_hash = std::stoull(json.at("batch_hash").get<std::string>(), nullptr, 16);
    h.sources = sources_from(json.at("sources"));
    // Checkpoints of programs that did not judge steps have no guard state.
    if (json.contains("guard")) h.guard = GuardState::from_json(json["guard"]);
    // Checkpoints of runs that were not validated have no losses of validation sets.
    if (json.contains("validation")) {
      h.validation = SetLosses::from_json(json["validation"]);
    }
    h.config_toml = json.at("config").get<std::string>();
    // Checkpoints of older programs have the model's text in their config.json only.
    if (json.contains("model")) h.model = json["model"].get<std::string>();
    if (json.contains("padding_row") && !json["padding_row"].is_null()) {
      h.padding_row = json["padding_row"].get<int64_t>();
    }
    if (json.contains("expert_counts")) {
      h.expert_loads = json["expert_counts"].get<std::vector<std::vector<int64_t>>>();
    }
    if (json.contains("base")) h.base = json["base"].get<std::string>();
    if (json.contains("reference")) h.reference = json["reference"].get<std::string>();
    if (json.contains("schedule")) {
      h.schedule = optim::ScheduleBasis::from_json(json["schedule"]);
    }
    h.fingerprint = json.at("numerics");
    return h;
  } catch (const Json::exception& error) {
    fail_input("checkpoint", "state.json: {}", words_of(error));
  } catch (const std::logic_error&) {
    throw InputError("checkpoint",
                     "state.json: batch_hash is no hexadecimal number of 64 bits");
  }
}

}  // namespace longhaul::train
