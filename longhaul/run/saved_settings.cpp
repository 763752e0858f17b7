#include "longhaul/run/saved_settings.h"

#include "longhaul/base/error.h"

namespace longhaul::run {

void check_state_version(const Json& state) {
  const int version = state.at("version").get<int>();
  if (version == kStateVersion || version == kCountsVersion) return;
  fail_config("checkpoint", "state.json has version {}, this program reads {} and {}; {}",
              version, kStateVersion, kCountsVersion,
              version > kCountsVersion
                  ? "use a newer longhaul"
                  : "this program no longer knows that version's order of the data: "
                    "start a new run from its weights with [init] weights = ...");
}

std::string saved_settings(const Json& state) {
  try {
    check_state_version(state);
    return state.at("config").get<std::string>();
  } catch (const Json::exception& error) {
    fail_input("checkpoint", "state.json: {}", words_of(error));
  }
}

}  // namespace longhaul::run
