#include "longhaul/train/history.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"

namespace longhaul::train {
namespace {

/// 2: mixtures are dealt otherwise than before, and sources are counted.
constexpr int kStateVersion = 2;

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
  Json json = {{"version", kStateVersion},
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
  if (!validation.empty()) json["validation"] = validation.to_json();
  if (schedule) json["schedule"] = schedule->to_json();
  return json;
}

History History::from_json(const Json& json) {
  try {
    if (const int version = json.at("version").get<int>(); version != kStateVersion) {
      throw InputError("checkpoint",
                       fmt::format("state.json has version {}, this program reads {}; {}",
                                   version, kStateVersion,
                                   version > kStateVersion
                                       ? "use a newer longhaul"
                                       : "its order of the data is no longer known: take "
                                         "the weights over with [init] weights = ..."));
    }
    History h;
    h.step = json.at("step").get<int64_t>();
    h.updates = json.at("updates").get<int64_t>();
    h.tokens = json.at("tokens").get<int64_t>();
    h.cursor = data::Cursor::from_json(json.at("cursor"));
    h.batch_hash = std::stoull(json.at("batch_hash").get<std::string>(), nullptr, 16);
    h.sources = sources_from(json.at("sources"));
    // Checkpoints from before steps were judged have none.
    if (json.contains("guard")) h.guard = GuardState::from_json(json["guard"]);
    // Nor have those of runs that were not validated.
    if (json.contains("validation")) {
      h.validation = SetLosses::from_json(json["validation"]);
    }
    h.config_toml = json.at("config").get<std::string>();
    // Earlier checkpoints have it in their config.json only.
    if (json.contains("model")) h.model = json["model"].get<std::string>();
    if (json.contains("padding_row") && !json["padding_row"].is_null()) {
      h.padding_row = json["padding_row"].get<int64_t>();
    }
    if (json.contains("schedule")) {
      h.schedule = optim::ScheduleBasis::from_json(json["schedule"]);
    }
    h.fingerprint = json.at("numerics");
    return h;
  } catch (const Json::exception& error) {
    throw InputError("checkpoint", fmt::format("state.json: {}", error.what()));
  } catch (const std::logic_error& error) {
    throw InputError("checkpoint",
                     fmt::format("state.json: batch_hash: {}", error.what()));
  }
}

}  // namespace longhaul::train
