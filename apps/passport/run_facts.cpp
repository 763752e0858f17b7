#include "apps/passport/run_facts.h"

#include "apps/passport/passport_files.h"
#include "longhaul/base/error.h"
#include "longhaul/checkpoint/manifest.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/config/load.h"
#include "longhaul/data/order/phase_stream.h"
#include "longhaul/format/hf_weights.h"
#include "longhaul/run/saved_settings.h"

namespace longhaul::apps {
namespace {

/// Returns the sources with how often each was read. The order of the sources is that of
/// the cursor's last phase.
Json sources_of(const Json& state) {
  Json sources = state.at("sources");
  const data::Cursor cursor = data::Cursor::from_json(state.at("cursor"));
  if (cursor.phases.empty()) return sources;
  const data::Phase& phase = cursor.phases.back();
  const std::vector<double> had = data::PhaseStream(cursor.phases).had(phase.consumed);
  for (size_t i = 0; i < had.size() && i < sources.size(); ++i) {
    sources[i]["epochs"] = had[i] / static_cast<double>(phase.sources[i].num_sequences);
  }
  return sources;
}

/// Returns the newest losses of the validation sets.
Json validations_of(const Json& state) {
  Json losses = Json::array();
  const Json sets = state.value("validation", Json::object());
  for (const auto& [name, set] : sets.items()) {
    losses.push_back(
        {{"name", name}, {"step", set.at("last_step")}, {"loss", set.at("last")}});
  }
  return losses;
}

Json base_of(const Json& state, const fs::path& weights) {
  if (weights.empty()) return {};
  Json base = {{"weights", weights.string()}};
  // The run recorded hashes (xxh3-128 over names, dtypes, shapes and bytes) of the base
  // of an adapter, and of the reference of pairs.
  for (const char* recorded : {"base", "reference"}) {
    const auto found = state.find(recorded);
    if (found != state.end()) base["recorded_" + std::string(recorded)] = *found;
  }
  if (!is_seen_file(weights / "config.json")) return base;
  std::vector<std::string> names;
  for (const format::HfShard& shard : format::list_hf_shards(weights)) {
    if (shard.present) names.push_back(shard.name);
  }
  base["files_at_the_export"] = hashes_of_files(weights, names);
  return base;
}

}  // namespace

Json run_facts(const checkpoint::ModelSource& source) {
  Json facts = {{"run", nullptr}, {"base", nullptr}};
  if (source.kind != checkpoint::ModelSource::Kind::Checkpoint) return facts;
  const auto manifest = checkpoint::Manifest::read(source.path);
  const Json state = checkpoint::read_state(source.path);
  Json& run = facts["run"];
  run = {{"identity", manifest.run},    {"step", manifest.step},
         {"attempt", manifest.attempt}, {"saved_at", manifest.saved_at},
         {"build", manifest.build},     {"layout", manifest.layout}};
  const std::string settings = run::saved_settings(state);
  if (settings.empty()) return facts;
  try {
    run["settings"] = settings;
    run["tokens"] = state.at("tokens");
    run["sources"] = sources_of(state);
    run["batch_hash_chain"] = state.at("batch_hash");
    run["validation"] = validations_of(state);
    run["numerics"] = state.at("numerics");
    const std::string name = (source.path / "state.json").string();
    facts["base"] = base_of(state, parse_run_config(settings, name).config.init.weights);
  } catch (const Json::exception& error) {
    fail_config("export",
                "{}: state.json has no facts for a passport: {}; leave "
                "--passport out",
                source.path.string(), words_of(error));
  }
  return facts;
}

}  // namespace longhaul::apps
