#include "longhaul/plan/layout_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <variant>

#include "longhaul/config/fields.h"
#include "longhaul/config/rules.h"

namespace longhaul::plan {
namespace {

/// Returns the word that a key of a section has in a run file.
std::string word_of(const config::Fields& fields, std::string_view key) {
  const config::Table table = config::get_fields(fields);
  return std::get<std::string>(config::find(table, key)->value.data);
}

}  // namespace

std::string pipeline_name(PipelineKind kind) {
  ParallelSection section;
  section.pipeline = kind;
  return word_of(fields_of(section), "pipeline");
}

std::string recompute_name(RecomputeKind kind) {
  MemorySection section;
  section.recompute = kind;
  return word_of(fields_of(section), "recompute");
}

KeptSettings kept_settings(const RunConfig& config) {
  KeptSettings kept;
  if (!config.parallel.auto_) return kept;
  const std::vector<std::string> open = config::open_settings(config);
  const auto keep = [&](const char* key, auto& to, const auto& value) {
    if (std::ranges::find(open, key) == open.end()) to = value;
  };
  const ParallelSection& p = config.parallel;
  keep("parallel.tp", kept.tp, p.tp);
  keep("parallel.pp", kept.pp, p.pp);
  keep("parallel.cp", kept.cp, p.cp);
  keep("parallel.ep", kept.ep, p.ep);
  keep("parallel.pipeline", kept.pipeline, p.pipeline);
  keep("parallel.virtual_stages", kept.virtual_stages, p.virtual_stages);
  keep("parallel.zero", kept.zero, p.zero);
  keep("parallel.shard_group", kept.shard_group, p.shard_group);
  keep("batch.micro_size", kept.micro_size, config.batch.micro_size);
  keep("memory.recompute", kept.recompute, config.memory.recompute);
  return kept;
}

void set_layout(RunConfig& config, const LayoutSettings& settings, int64_t ranks) {
  ParallelSection& p = config.parallel;
  p.auto_ = false;
  p.chosen.reset();
  p.tp = settings.tp;
  p.pp = settings.pp;
  p.cp = settings.cp;
  p.ep = settings.ep;
  p.pipeline = settings.pipeline;
  p.virtual_stages = settings.virtual_stages;
  p.partition.clear();
  p.zero = settings.zero;
  p.shard_group = {};
  if (settings.zero > 0 && settings.shards != settings.data_ranks(ranks)) {
    p.shard_group = {ShardGroup::Kind::Ranks, settings.shards};
  }
  config.batch.micro_size = settings.micro_size;
  config.memory.recompute = settings.recompute;
  config.memory.recompute_layers.reset();
}

std::string to_string(const LayoutSettings& s, int64_t ranks) {
  std::string text =
      fmt::format("tp {}, pp {}, cp {}, dp {}, ", s.tp, s.pp, s.cp, s.dp(ranks));
  if (s.ep > 1) text += fmt::format("ep {}, ", s.ep);
  text += fmt::format("micro batch {}, ", s.micro_size);
  if (s.pp > 1) text += fmt::format("{}, ", pipeline_name(s.pipeline));
  if (s.virtual_stages > 1) text += fmt::format("virtual stages {}, ", s.virtual_stages);
  text += fmt::format("zero {}", s.zero);
  if (s.shards > 1) text += fmt::format(" over {}", s.shards);
  return text + fmt::format(", recompute {}", recompute_name(s.recompute));
}

std::vector<std::string> toml_lines(const LayoutSettings& s, int64_t ranks) {
  std::vector<std::string> lines = {
      "[batch]",
      fmt::format("micro_size = {}", s.micro_size),
      "[memory]",
      fmt::format("recompute = \"{}\"", recompute_name(s.recompute)),
      "[parallel]",
      fmt::format("tp = {}", s.tp),
      fmt::format("pp = {}", s.pp),
      fmt::format("cp = {}", s.cp),
      fmt::format("ep = {}", s.ep),
      fmt::format("pipeline = \"{}\"", pipeline_name(s.pipeline)),
      fmt::format("virtual_stages = {}", s.virtual_stages),
      fmt::format("zero = {}", s.zero),
  };
  lines.push_back(s.zero == 0 || s.shards == s.data_ranks(ranks)
                      ? "shard_group = \"world\""
                      : fmt::format("shard_group = {}", s.shards));
  return lines;
}

std::vector<int32_t> divisors_of(int64_t number) {
  std::vector<int32_t> divisors;
  for (int64_t i = 1; i * i <= number; ++i) {
    if (number % i != 0) continue;
    divisors.push_back(static_cast<int32_t>(i));
    if (i * i < number) divisors.push_back(static_cast<int32_t>(number / i));
  }
  std::ranges::sort(divisors);
  return divisors;
}

std::vector<LayoutSettings> meshes_of(int64_t ranks) {
  std::vector<LayoutSettings> meshes;
  for (const int32_t tp : divisors_of(ranks)) {
    for (const int32_t pp : divisors_of(ranks / tp)) {
      for (const int32_t cp : divisors_of(ranks / tp / pp)) {
        meshes.push_back({.tp = tp, .pp = pp, .cp = cp});
      }
    }
  }
  return meshes;
}

}  // namespace longhaul::plan
