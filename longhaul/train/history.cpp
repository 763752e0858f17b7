#include "longhaul/train/history.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"

namespace longhaul::train {
namespace {

constexpr int kStateVersion = 1;

}  // namespace

Json History::to_json() const {
  return {
      {"version", kStateVersion},   {"step", step},
      {"updates", updates},         {"tokens", tokens},
      {"cursor", cursor.to_json()}, {"batch_hash", fmt::format("{:016x}", batch_hash)},
      {"config", config_toml},      {"numerics", fingerprint}};
}

History History::from_json(const Json& json) {
  try {
    if (const int version = json.at("version").get<int>(); version != kStateVersion) {
      throw InputError("checkpoint",
                       fmt::format("state.json has version {}, this program "
                                   "reads {}; use a newer longhaul",
                                   version, kStateVersion));
    }
    History h;
    h.step = json.at("step").get<int64_t>();
    h.updates = json.at("updates").get<int64_t>();
    h.tokens = json.at("tokens").get<int64_t>();
    h.cursor = data::Cursor::from_json(json.at("cursor"));
    h.batch_hash = std::stoull(json.at("batch_hash").get<std::string>(), nullptr, 16);
    h.config_toml = json.at("config").get<std::string>();
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
