#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "longhaul/base/clock.h"
#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/config/load.h"
#include "longhaul/config/named_paths.h"
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

namespace config {
namespace {

// Positions in a micro batch are 32-bit numbers, and the bytes of a step must fit 64
// bits.
constexpr int64_t kMostTokensOfPass = INT32_MAX;
constexpr int64_t kMostTokensOfStep = 10'000'000'000;

/// Returns the largest micro batch, up to the given one, that divides the share of each
/// of `dp` replicas in the global batch; 0 if `dp` does not divide the global batch.
int64_t largest_micro_size(const BatchSection& batch, int64_t dp) {
  if (batch.global_size % dp != 0) return 0;
  int64_t micro = std::min(batch.micro_size, batch.global_size / dp);
  while (batch.global_size / dp % micro != 0) --micro;
  return micro;
}

/// Returns the multiples of the limit below and above the number: "6 or 9".
std::string nearest(const BrokenRule& broken) {
  const int64_t lower = broken.number / broken.limit * broken.limit;
  return (lower > 0 ? fmt::format("{} or ", lower) : std::string()) +
         std::to_string(lower + broken.limit);
}

Refusal too_many_tokens(const char* key, int64_t sequences, const char* of,
                        const BrokenRule& broken, const RunConfig& config) {
  return say(key,
             "{} = {} sequences of data.seq_len = {} are {} tokens; {} has at most {}",
             key, sequences, config.data.seq_len, broken.number, of, broken.limit);
}

Refusal refusal_of_batch(const BrokenRule& broken, const RunConfig& config) {
  const ParallelSection& p = config.parallel;
  const BatchSection& batch = config.batch;
  const int64_t dp = broken.limit / batch.micro_size;
  const int64_t micro = largest_micro_size(batch, dp);
  const std::string same =
      micro > 0
          ? fmt::format("set batch.micro_size = {}, which trains the same steps; or ",
                        micro)
          : std::string();
  return say(
      "batch.global_size",
      "batch.global_size = {} does not divide by batch.micro_size {} * dp {} = {} (world "
      "{} = pp {} * dp {} * cp {} * tp {}); {}the nearest batch.global_size: {}",
      batch.global_size, batch.micro_size, dp, broken.limit, p.pp * dp * p.cp * p.tp,
      p.pp, dp, p.cp, p.tp, same, nearest(broken));
}

}  // namespace

std::vector<BrokenRule> broken_settings(const RunConfig& config) {
  using Rule = LayoutRule;
  const ParallelSection& p = config.parallel;
  const BatchSection& batch = config.batch;
  const int64_t seq_len = config.data.seq_len;
  std::vector<BrokenRule> broken;
  const auto check = [&](bool fits, Rule rule, int64_t number = 0, int64_t limit = 0) {
    if (!fits) broken.push_back({rule, number, limit});
  };
  // The products are of bounded settings and cannot overflow.
  const int64_t pass = batch.micro_size * seq_len, step = batch.global_size * seq_len;
  check(pass <= kMostTokensOfPass, Rule::PassTokens, pass, kMostTokensOfPass);
  check(step <= kMostTokensOfStep, Rule::StepTokens, step, kMostTokensOfStep);
  check(batch.global_size % batch.micro_size == 0, Rule::MicroBatches, batch.global_size,
        batch.micro_size);
  const bool interleaved = p.pipeline == PipelineKind::Interleaved;
  check(interleaved == (p.virtual_stages > 1), Rule::VirtualStages, p.virtual_stages);
  check(!interleaved || p.pp > 1, Rule::InterleavedStages, p.pp, 2);
  check(p.cp == 1 || seq_len % (2 * p.cp) == 0, Rule::Chunks, seq_len, 2 * p.cp);
  const int64_t positions = seq_len / p.cp;
  check(p.tp == 1 || !p.sequence || positions % p.tp == 0, Rule::Positions, positions,
        p.tp);
  check(!config.memory.offload_activations ||
            config.memory.recompute == RecomputeKind::Full,
        Rule::Offload);
  return broken;
}

std::vector<BrokenRule> broken_by_ranks(const RunConfig& config, int64_t ranks) {
  LH_CHECK(ranks >= 1, "config", "world = {} must be at least 1", ranks);
  const ParallelSection& p = config.parallel;
  const int64_t replica = p.tp * p.pp * p.cp;
  if (ranks % replica != 0) return {{LayoutRule::Replicas, ranks, replica}};
  std::vector<BrokenRule> broken;
  const int64_t dp = ranks / replica;
  if (dp * p.cp % p.ep != 0) {
    broken.push_back({LayoutRule::ExpertGroups, dp * p.cp, p.ep});
  }
  const int64_t per_pass = config.batch.micro_size * dp;
  if (config.batch.global_size % per_pass != 0) {
    broken.push_back({LayoutRule::Batch, config.batch.global_size, per_pass});
  }
  return broken;
}

void Refusal::fail(const RunConfig& config) const {
  if (of.find('.') == std::string::npos) throw ConfigError(of, text);
  fail_at(origin(config, of), text);
}

Refusal refusal_of(const BrokenRule& broken, const RunConfig& config) {
  const ParallelSection& p = config.parallel;
  switch (broken.rule) {
    case LayoutRule::PassTokens:
      return too_many_tokens("batch.micro_size", config.batch.micro_size,
                             "a forward pass", broken, config);
    case LayoutRule::StepTokens:
      return too_many_tokens("batch.global_size", config.batch.global_size, "a step",
                             broken, config);
    case LayoutRule::MicroBatches:
      return say("batch.micro_size",
                 "batch.global_size = {} does not divide into micro batches of "
                 "batch.micro_size = {}; the nearest batch.global_size: {}",
                 broken.number, broken.limit, nearest(broken));
    case LayoutRule::VirtualStages:
      return say(
          broken.number == 1 ? "parallel.pipeline" : "parallel.virtual_stages",
          "parallel.virtual_stages = {} and pipeline = \"interleaved\" go together: "
          "several stages per rank alternate; set both, or neither",
          broken.number);
    case LayoutRule::InterleavedStages:
      return say("parallel.pipeline",
                 "parallel.pipeline = \"interleaved\" needs parallel.pp of at least 2");
    case LayoutRule::Chunks:
      return say("parallel.cp",
                 "data.seq_len = {} does not divide by 2 * cp = {}: every rank has one "
                 "early and one late part of a sequence; the nearest that does: {}",
                 broken.number, broken.limit,
                 (broken.number / broken.limit + 1) * broken.limit);
    case LayoutRule::Positions:
      return say("parallel.sequence",
                 "parallel.sequence = true splits the {} positions of a rank "
                 "(data.seq_len {} / cp {}) over tp {}, which does not divide them; "
                 "change data.seq_len, or set parallel.sequence = false",
                 broken.number, config.data.seq_len, p.cp, p.tp);
    case LayoutRule::Offload:
      return say("memory.offload_activations",
                 "memory.offload_activations = true moves the activations that recompute "
                 "= \"full\" keeps; set memory.recompute = \"full\"");
    case LayoutRule::Replicas:
      return say("parallel.tp",
                 "{} not divide into model replicas of pp {} * cp {} * tp {} = {} ranks; "
                 "start a multiple of {} (longhaul launch -n {}), or change [parallel]",
                 counted(broken.number, "rank") + (broken.number == 1 ? " does" : " do"),
                 p.pp, p.cp, p.tp, broken.limit, broken.limit, broken.limit);
    case LayoutRule::ExpertGroups:
      return say("parallel.ep",
                 "parallel.ep = {} does not divide the {} of dp {} x cp {}; choose one "
                 "of their divisors",
                 p.ep, counted(broken.number, "rank"), broken.number / p.cp, p.cp);
    case LayoutRule::Batch:
      return refusal_of_batch(broken, config);
    default:
      LH_ASSERT(false, "rule {} needs the model", static_cast<int>(broken.rule));
  }
}

}  // namespace config

DerivedBatch derive_batch(const RunConfig& config, int64_t world) {
  if (config.parallel.undecided()) {
    fail_key(config, "parallel.auto",
             "parallel.auto = true and no layout is chosen yet: longhaul submit and "
             "longhaul launch choose one before they start ranks. To start ranks in "
             "another way, write the lines of longhaul plan --search in place of "
             "parallel.auto; a run that has begun has its layout in {}",
             (config.run.dir / run::kConfigFile).string());
  }
  const auto broken = config::broken_by_ranks(config, world);
  if (!broken.empty()) config::refusal_of(broken.front(), config).fail(config);
  const ParallelSection& p = config.parallel;
  const BatchSection& batch = config.batch;
  DerivedBatch derived;
  derived.world = world;
  derived.dp = world / (p.tp * p.pp * p.cp);
  derived.accumulation = batch.global_size / (batch.micro_size * derived.dp);
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

void refuse_past_end(const RunConfig& config, double now) {
  const auto& until = config.run.until;
  if (!until || static_cast<double>(until->seconds) > now) return;
  fail_key(config, "run.until",
           "run.until = {} is past, and it is {} now; set a later date, or leave it out",
           utc_text(until->seconds), utc_text(static_cast<int64_t>(now)));
}

int64_t last_step(const RunConfig& config, int64_t total) {
  return std::min(config.run.stop_after.value_or(total), total);
}

}  // namespace longhaul
