#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "longhaul/base/counted.h"
#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/config/addresses/named_paths.h"
#include "longhaul/config/load.h"
#include "longhaul/config/rules.h"
#include "longhaul/objects/address.h"
#include "longhaul/run/files.h"

namespace longhaul {

using config::fail_key;

bool matches_parameter(std::string_view pattern, std::string_view name) {
  if (pattern.find_first_of("*?") == std::string_view::npos) {
    return name.find(pattern) != std::string_view::npos;
  }
  return glob_match(pattern, name);
}

fs::path checkpoint_dir(const RunConfig& config) {
  return config.checkpoint.dir.empty() ? config.run.dir / run::kCheckpointsDir
                                       : config.checkpoint.dir;
}

fs::path data_cache_dir(const RunConfig& config) {
  return config.data.cache.empty() ? config.run.dir / run::kDataCacheDir
                                   : config.data.cache;
}

std::vector<fs::path> addresses_of(const RunConfig& config) {
  std::vector<fs::path> found;
  for (const NamedPath& named : named_paths(config)) {
    if (!objects::is_address(named.path)) continue;
    if (std::ranges::find(found, named.path) == found.end()) found.push_back(named.path);
  }
  return found;
}

std::string DataPaths::text() const {
  std::string out;
  for (const fs::path& entry : entries) out += (out.empty() ? "" : ",") + entry.string();
  return out;
}

namespace {

/// Returns the largest micro batch up to the one given that keeps the global batch on
/// `dp` replicas; 0 where none does.
int64_t largest_micro_size(const BatchSection& batch, int64_t dp) {
  if (batch.global_size % dp != 0) return 0;
  int64_t micro = std::min(batch.micro_size, batch.global_size / dp);
  while (batch.global_size / dp % micro != 0) --micro;
  return micro;
}

}  // namespace

DerivedBatch derive_batch(const RunConfig& config, int64_t world) {
  LH_CHECK(world >= 1, "config", "world = {} must be at least 1", world);
  const ParallelSection& p = config.parallel;
  const int64_t model_ranks = p.tp * p.pp * p.cp;
  if (world % model_ranks != 0) {
    fail_key(config, "parallel.tp",
             "{} not divide into model replicas of pp {} * cp {} * tp {} = {} ranks; "
             "start a multiple of {} (longhaul launch -n {}), or change [parallel]",
             counted(world, "rank") + (world == 1 ? " does" : " do"), p.pp, p.cp, p.tp,
             model_ranks, model_ranks, model_ranks);
  }
  DerivedBatch derived;
  derived.world = world;
  derived.dp = world / model_ranks;
  if (derived.dp * p.cp % p.ep != 0) {
    fail_key(config, "parallel.ep",
             "parallel.ep = {} does not divide the {} of dp {} x cp {}; choose one of "
             "their divisors",
             p.ep, counted(derived.dp * p.cp, "rank"), derived.dp, p.cp);
  }
  const BatchSection& batch = config.batch;
  const int64_t per_pass = batch.micro_size * derived.dp;
  if (batch.global_size % per_pass != 0) {
    const int64_t lower = batch.global_size / per_pass * per_pass;
    const int64_t micro = largest_micro_size(batch, derived.dp);
    fail_key(
        config, "batch.global_size",
        "batch.global_size = {} does not divide by batch.micro_size {} * dp {} = {} "
        "(world {} = pp {} * dp {} * cp {} * tp {}); {}the nearest batch.global_size: "
        "{}{}",
        batch.global_size, batch.micro_size, derived.dp, per_pass, world, p.pp,
        derived.dp, p.cp, p.tp,
        micro > 0 ? fmt::format("set batch.micro_size = {}, which trains the same "
                                "steps; or ",
                                micro)
                  : std::string(),
        lower > 0 ? fmt::format("{} or ", lower) : std::string(), lower + per_pass);
  }
  derived.accumulation = batch.global_size / per_pass;
  derived.sequences_per_replica = batch.global_size / derived.dp;
  derived.tokens_per_step = batch.global_size * config.data.seq_len;
  return derived;
}

int64_t total_steps(const RunConfig& config, int64_t train_sequences,
                    const DataSoFar& past) {
  if (config.run.steps) return *config.run.steps;
  const double left =
      config.run.epochs.value_or(0.0) * static_cast<double>(train_sequences) -
      past.sequences;
  const double exact =
      static_cast<double>(past.step) +
      std::floor(std::max(left, 0.0) / static_cast<double>(config.batch.global_size));
  if (exact > static_cast<double>(config::kMaxSteps)) {
    fail_key(config, "run.epochs",
             "run.epochs = {} over {} sequences are {:.4g} steps of batch.global_size = "
             "{} sequences; a run has at most {}",
             config.run.epochs.value_or(0.0), train_sequences, exact,
             config.batch.global_size, config::kMaxSteps);
  }
  const auto steps = static_cast<int64_t>(exact);
  if (steps < 1) {
    fail_key(config, "run.epochs",
             "run.epochs = {} over {} sequences is less than one step of "
             "batch.global_size = {} sequences",
             config.run.epochs.value_or(0.0), train_sequences, config.batch.global_size);
  }
  config::check_run_length(config, steps, "run.epochs");
  config::check_schedule_length(config, steps);
  return steps;
}

int64_t last_step(const RunConfig& config, int64_t total) {
  return std::min(config.run.stop_after.value_or(total), total);
}

}  // namespace longhaul
