#include "longhaul/train/resume.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/train/fingerprint.h"
#include "longhaul/train/rank_zero.h"

namespace longhaul::train {
namespace {

/// The checkpoint to continue from, the same on all ranks; empty: none.
fs::path chosen_checkpoint(const Session& session, RunLog& run) {
  return on_rank_zero(*session.world, [&] {
    std::vector<std::string> skipped;
    const auto chosen = checkpoint::choose_resume(
        session.config.checkpoint.resume, checkpoint_dir(session.config), &skipped);
    for (const std::string& line : skipped) run.log().warning(line);
    return chosen ? chosen->string() : std::string();
  });
}

History resume(Session& session, RunLog& run, const fs::path& path) {
  const auto reader = checkpoint::CheckpointReader::open(path);
  const History history = History::from_json(reader.state());
  const RunConfig saved =
      parse_run_config(history.config_toml, (path / "state.json").string()).config;
  for (const ConfigChange& change : check_resume(saved, session.config)) {
    run.log().info(fmt::format("changed since the checkpoint: {} was {}, is {}",
                               change.key, change.old_value, change.new_value));
  }
  restore_state(session.state(), reader);
  session.optimizer->set_updates(history.updates);
  run.log().info(
      fmt::format("weights, moments and data position: {} (step {}, {} tokens)",
                  path.string(), history.step, grouped(history.tokens)));
  if (!session.config.init.weights.empty()) {
    run.log().info(fmt::format("[init] weights {} are not used: the checkpoint is newer",
                               session.config.init.weights.string()));
  }
  const auto difference = fingerprint_difference(
      history.fingerprint, numerics_fingerprint(session.layout.describe()));
  if (difference) run.log().warning("not bitwise the uninterrupted run: " + *difference);
  return history;
}

void initialise(Session& session, RunLog& run) {
  const RunConfig& config = session.config;
  if (config.init.weights.empty()) {
    initialise_weights(session.state(), static_cast<uint64_t>(config.run.seed));
    const std::string line = fmt::format("weights: RANDOM, seed {}", config.run.seed);
    const fs::path dir = session.model_config.source_path.parent_path();
    const bool has_weights = fs::exists(dir / "model.safetensors") ||
                             fs::exists(dir / "model.safetensors.index.json");
    if (has_weights) {
      run.log().warning(
          fmt::format("{}, although {} holds weights; set init.weights to start "
                      "from them",
                      line, dir.string()));
    } else {
      run.log().info(line);
    }
    return;
  }
  const auto source = checkpoint::WeightsSource::open(config.init.weights);
  std::vector<std::string> extra;
  if (session.model_config.tie_word_embeddings) extra.push_back("lm_head.weight");
  source->check(expected_tensors(session), extra);
  for (const std::string& line : source->ignored())
    run.log().info("passed over: " + line);
  load_weights(session.state(), [&](const TensorSlice& slice, int64_t begin, int64_t end,
                                    DType dtype, std::span<std::byte> out) {
    source->read_flat_range(slice, begin, end, dtype, out);
  });
  run.log().info("weights: " + source->describe());
}

}  // namespace

History load_state(Session& session, RunLog& run) {
  const fs::path path = chosen_checkpoint(session, run);
  History history;
  on_all_ranks(*session.world, [&] {
    if (!path.empty()) {
      history = resume(session, run, path);
    } else {
      initialise(session, run);
    }
  });
  session.replicas->share_weights();
  history.config_toml = to_toml(session.config);
  history.fingerprint = numerics_fingerprint(session.layout.describe());
  return history;
}

}  // namespace longhaul::train
