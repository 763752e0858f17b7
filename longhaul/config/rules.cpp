#include "longhaul/config/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"
#include "longhaul/base/text.h"
#include "longhaul/config/due.h"
#include "longhaul/dictionary/words.h"
#include "longhaul/objects/address.h"

namespace longhaul::config {
namespace {

using Warnings = std::vector<std::string>;

void check_run(const RunConfig& c, Warnings& warnings) {
  if (c.run.steps && c.run.epochs) {
    fail_key(c, "run.epochs",
             "run.steps and run.epochs are both given; keep one of them");
  }
  if (!c.run.steps && !c.run.epochs) {
    fail_key(c, "run.dir",
             "required and not given: run.steps (optimizer steps) or run.epochs (passes "
             "over data.train)");
  }
  if (c.run.steps && c.run.stop_after && *c.run.stop_after > *c.run.steps) {
    fail_key(c, "run.stop_after",
             "run.stop_after = {} is past run.steps = {}; it can only end a run earlier",
             *c.run.stop_after, *c.run.steps);
  }
  const std::string& device = c.run.device;
  if (device != "auto" && device != "cpu" && device != "cuda" && device != "neuron" &&
      device != "plugin") {
    fail_key(c, "run.device",
             "run.device = \"{}\" is not auto, cpu, cuda, neuron or plugin{}", device,
             dictionary::other_value_hint("run.device", device));
  }
  if (c.run.device_fallback != "error" && c.run.device_fallback != "warn") {
    fail_key(c, "run.device_fallback",
             "run.device_fallback = \"{}\" is not error or warn", c.run.device_fallback);
  }
  if (!c.run.compile_cache_from.empty() && c.run.compile_cache_dir.empty()) {
    fail_key(c, "run.compile_cache_from",
             "run.compile_cache_from needs run.compile_cache_dir, the folder that is "
             "filled");
  }
  if (device == "plugin" && c.run.device_plugin.empty()) {
    fail_key(c, "run.device",
             "run.device = \"plugin\" needs run.device_plugin, the library that brings "
             "the device");
  }
  if (!c.run.device_plugin.empty() && device != "auto" && device != "plugin") {
    fail_key(c, "run.device_plugin",
             "run.device_plugin = \"{}\" has no use with run.device = \"{}\"; leave it "
             "out, or set run.device = \"plugin\"",
             c.run.device_plugin.string(), device);
  }
  if (c.run.steps) check_run_length(c, *c.run.steps, "run.steps");
  if (c.run.stop_after && c.run.steps && *c.run.stop_after == *c.run.steps) return;
  if (c.run.stop_after && c.schedule.warmup_steps &&
      *c.run.stop_after <= *c.schedule.warmup_steps) {
    warnings.push_back(fmt::format(
        "{}: run.stop_after = {} ends the run inside the warm-up of {} steps",
        origin(c, "run.stop_after"), *c.run.stop_after, *c.schedule.warmup_steps));
  }
}

void check_pass_environment(const RunConfig& c) {
  for (const std::string& name : c.run.pass_environment) {
    const auto belongs = [](char one) { return is_word_character(one) || one == '*'; };
    if (!name.empty() && !is_digit(name[0]) && std::ranges::all_of(name, belongs)) {
      continue;
    }
    // The message must not repeat a value, which may be a secret. The place of a --set
    // holds the value too.
    const std::string where = origin(c, "run.pass_environment");
    const size_t end = std::min(name.find('='), name.size());
    fail_at(where.starts_with("--set") ? where.substr(0, where.find('=')) : where,
            "run.pass_environment names \"{}\"{}; write names of letters, digits and _, "
            "with * for any text: [\"HTTPS_PROXY\", \"MY_*\"]",
            name.substr(0, end),
            end < name.size() ? " and a value, which belongs into the environment"
                              : ", which is no variable's name");
  }
}

void check_paths(const RunConfig& c) {
  const auto same = [](const fs::path& a, const fs::path& b) {
    const auto clean = [](const fs::path& p) {
      const fs::path normal = fs::absolute(p).lexically_normal();
      return normal.has_filename() ? normal : normal.parent_path();
    };
    return !a.empty() && !b.empty() && clean(a) == clean(b);
  };
  if (same(c.run.dir, c.model.config)) {
    fail_key(c, "run.dir",
             "run.dir and model.config are both {}; a run writes into its directory, so "
             "it needs one of its own",
             c.run.dir.string());
  }
  if (same(c.run.dir, c.init.weights)) {
    fail_key(c, "init.weights",
             "init.weights and run.dir are both {}; a run continues its own checkpoints "
             "by checkpoint.resume, so leave init.weights out",
             c.run.dir.string());
  }
}

void check_pipeline(const RunConfig& c, Warnings& warnings) {
  const ParallelSection& p = c.parallel;
  if (p.pp == 1) {
    const WarnUnused unused{c, warnings};
    unused(p.pipeline != ParallelSection{}.pipeline, "parallel.pipeline",
           "parallel.pp is 1");
    unused(!p.partition.empty(), "parallel.partition", "parallel.pp is 1");
  } else if (p.zero >= 2) {
    warnings.push_back(
        fmt::format("{}: parallel.zero = {} with pp = {}: the state that it shards is "
                    "whole during a step, since micro batches alternate between stages; "
                    "the state is sharded only between steps",
                    origin(c, "parallel.zero"), p.zero, p.pp));
  }
}

void check_auto(const RunConfig& c, Warnings& warnings) {
  const ParallelSection& p = c.parallel;
  WarnUnused{c, warnings}(p.chosen && !p.auto_, "parallel.chosen",
                          "parallel.auto is false");
  if (!p.auto_) return;
  const auto refuse = [&](bool set, const char* key) {
    if (!set) return;
    fail_key(c, key,
             "{} belongs to one layout, and parallel.auto = true chooses another; take "
             "one of the two out",
             key);
  };
  refuse(!p.partition.empty(), "parallel.partition");
  refuse(c.memory.recompute_layers.has_value(), "memory.recompute_layers");
}

void check_parallel(const RunConfig& c, Warnings& warnings) {
  const ParallelSection& p = c.parallel;
  check_auto(c, warnings);
  if (p.undecided()) return;
  const auto broken = broken_settings(c);
  if (!broken.empty()) refusal_of(broken.front(), c).fail(c);
  check_pipeline(c, warnings);
  const WarnUnused unused{c, warnings};
  unused(c.experts.balance_weight && c.experts.balance == BalanceKind::Off,
         "experts.balance_weight", "experts.balance is \"off\"");
  unused(p.zero == 0 && p.shard_group != ParallelSection{}.shard_group,
         "parallel.shard_group", "parallel.zero is 0");
  unused(p.cp == 1 && p.context != ParallelSection{}.context, "parallel.context",
         "parallel.cp is 1");
  unused(c.memory.recompute_layers && c.memory.recompute != RecomputeKind::Full,
         "memory.recompute_layers", "memory.recompute is not \"full\"");
  unused(c.memory.gathered_gb > 0.0 && p.zero != 3, "memory.gathered_gb",
         "parallel.zero is not 3");
}

void check_precision(const RunConfig& c) {
  if (c.precision.master == MasterType::Bf16Sr &&
      c.precision.compute != ComputeType::Bf16) {
    fail_key(c, "precision.master",
             "precision.master = \"bf16_sr\" keeps one copy of the weights, in bf16; it "
             "needs precision.compute = \"bf16\"");
  }
}

void check_lamb(const RunConfig& c) {
  const OptimizerSection& o = c.optimizer;
  if (o.convention != OptimizerSection{}.convention) {
    fail_key(c, "optimizer.convention",
             "optimizer.convention = \"hf\" belongs to kind = \"adamw\": lamb has one "
             "form; leave it out");
  }
  const bool decays = o.weight_decay > 0.0 ||
                      std::ranges::any_of(o.groups, [](const ParameterGroup& group) {
                        return group.weight_decay.value_or(0.0) > 0.0;
                      });
  if (!decays) {
    fail_key(c, "optimizer.weight_decay",
             "optimizer.weight_decay = 0 leaves no parameter a trust ratio, and kind = "
             "\"lamb\" would be Adam; give it a decay, or take kind = \"adamw\"");
  }
}

void check_optimizer(const RunConfig& c, Warnings& warnings) {
  check_precision(c);
  if (c.optimizer.kind == OptimizerKind::Lamb) check_lamb(c);
  for (const std::string& pattern : c.optimizer.no_decay) {
    if (pattern.empty()) {
      fail_key(c, "optimizer.no_decay", "optimizer.no_decay holds an empty pattern");
    }
  }
  const WarnUnused unused{c, warnings};
  unused(c.optimizer.weight_decay == 0.0 &&
             c.optimizer.no_decay != OptimizerSection{}.no_decay,
         "optimizer.no_decay", "optimizer.weight_decay is 0");
  if (c.precision.compute == ComputeType::Fp32) {
    const bool narrow =
        c.precision.gradients == StateType::Bf16 || c.precision.reduce == StateType::Bf16;
    if (narrow) {
      const std::string key = c.precision.gradients == StateType::Bf16
                                  ? "precision.gradients"
                                  : "precision.reduce";
      warnings.push_back(
          fmt::format("{}: {} = bf16 loses most of the accuracy that precision.compute = "
                      "fp32 pays for",
                      origin(c, key), key));
    }
  }
}

/// Checks the text of checkpoint.mirror; the object store is not asked.
void check_mirror(const RunConfig& c, Warnings& warnings) {
  const std::optional<std::string>& mirror = c.checkpoint.mirror;
  const WarnUnused unused{c, warnings};
  unused(!mirror && c.checkpoint.mirror_keep, "checkpoint.mirror_keep",
         "checkpoint.mirror is not given");
  if (!mirror) return;
  try {
    if (!objects::parse_address(*mirror).key.empty()) return;
  } catch (const InputError& error) {
    fail_key(c, "checkpoint.mirror", "checkpoint.mirror: {}", error.message());
  }
  fail_key(c, "checkpoint.mirror",
           "checkpoint.mirror = \"{}\" is a whole bucket; give the run a place of its "
           "own there, such as {}",
           *mirror, (objects::parse_address(*mirror) / "runs/a").text());
}

void check_resume_and_log(const RunConfig& c, Warnings& warnings) {
  const WarnUnused unused{c, warnings};
  const bool once = saves_once(c.checkpoint);
  unused(once && c.checkpoint.keep > 1 && c.checkpoint.keep != CheckpointSection{}.keep,
         "checkpoint.keep", "checkpoint.every = 0 saves once, at the end");
  unused(!c.parallel.sequence && c.parallel.tp == 1 && !c.parallel.undecided(),
         "parallel.sequence", "parallel.tp is 1");
  unused(c.init.weights.empty() && !c.init.certificate, "init.certificate",
         "init.weights is not given");
  check_mirror(c, warnings);
  if (once) {
    warnings.push_back(
        fmt::format("{}: checkpoint.every = 0: a run that is killed before its end "
                    "starts again at step 0",
                    origin(c, "checkpoint.every")));
  }
}

}  // namespace

void resolve_optimizer(RunConfig& config) {
  OptimizerSection& o = config.optimizer;
  if (o.kind != OptimizerKind::Lamb) return;
  if (!given(config, "optimizer.betas")) o.betas = {0.9, 0.999};
  if (!given(config, "optimizer.eps")) o.eps = 1e-6;
  if (!given(config, "optimizer.weight_decay")) o.weight_decay = 0.01;
}

void check_run_length(const RunConfig& config, int64_t steps, const std::string& key) {
  // The limit leaves room in 64 bits for products of positions in the data and shares of
  // sources.
  constexpr int64_t kMostSequences = int64_t{1} << 60;
  const BatchSection& batch = config.batch;
  const auto sequences = checked_product(steps, batch.global_size);
  if (sequences && *sequences <= kMostSequences &&
      checked_product(*sequences, config.data.seq_len)) {
    return;
  }
  fail_key(
      config, key,
      "{}: {} steps of batch.global_size = {} sequences of data.seq_len = {} tokens are "
      "more than a run can count ({} sequences, {} tokens); lower one of the three",
      key, steps, batch.global_size, config.data.seq_len, kMostSequences, INT64_MAX);
}

std::string origin(const RunConfig& config, const std::string& key) {
  const auto found = config.origins.find(key);
  if (found != config.origins.end()) return found->second;
  const auto file = config.origins.find("");
  return file == config.origins.end() ? std::string() : file->second;
}

bool given(const RunConfig& config, const std::string& key) {
  return config.origins.contains(key);
}

std::vector<std::string> open_settings(const RunConfig& config) {
  const std::optional<ChosenLayout>& chosen = config.parallel.chosen;
  const auto on_command_line = [&](const std::string& key) {
    return origin(config, key).starts_with("--set ");
  };
  std::vector<std::string> open;
  for (const std::string_view key : kLayoutSettings) {
    const std::string name(key);
    const bool earlier = chosen && std::ranges::count(chosen->settings, key) > 0 &&
                         (!on_command_line(name) || on_command_line("parallel.chosen"));
    if (earlier || !given(config, name)) open.emplace_back(key);
  }
  return open;
}

void WarnUnused::operator()(bool no_effect, const std::string& key,
                            const std::string& reason) const {
  if (!no_effect || !given(config, key)) return;
  warnings.push_back(
      fmt::format("{}: {} has no effect: {}", origin(config, key), key, reason));
}

std::vector<std::string> check_rules(const RunConfig& config) {
  Warnings warnings;
  check_run(config, warnings);
  check_pass_environment(config);
  check_paths(config);
  check_data(config, warnings);
  check_parallel(config, warnings);
  check_optimizer(config, warnings);
  check_adapter(config, warnings);
  check_preference(config, warnings);
  check_schedule(config, warnings);
  check_resume_and_log(config, warnings);
  check_bad_steps(config, warnings);
  return warnings;
}

}  // namespace longhaul::config
