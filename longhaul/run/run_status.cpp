#include "longhaul/run/run_status.h"

namespace longhaul::run {

RunStatus::Device RunStatus::Device::from_json(const Json& json) {
  return {json.at("name").get<std::string>(), json.at("memory_used_bytes").get<int64_t>(),
          json.at("memory_total_bytes").get<int64_t>(), json.at("busy").get<double>()};
}

RunStatus RunStatus::from_json(const Json& json, const TextFilter& text) {
  return json.is_object() ? read_fields<RunStatus>(json, text) : RunStatus();
}

}  // namespace longhaul::run
