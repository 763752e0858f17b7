#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/config/run_config.h"

namespace longhaul::plan {

/// The settings of a layout that a search varies. dp follows from the number of ranks.
struct LayoutSettings {
  int32_t tp = 1;
  int32_t pp = 1;
  int32_t cp = 1;
  int32_t ep = 1;
  int32_t micro_size = 1;
  int32_t virtual_stages = 1;
  int32_t shards = 1;  ///< ranks of a shard group; 1 with zero = 0
  int32_t zero = 0;
  PipelineKind pipeline = PipelineKind::OneFOneB;
  RecomputeKind recompute = RecomputeKind::None;
  auto operator<=>(const LayoutSettings&) const = default;

  int32_t data_ranks(int64_t ranks) const {
    return static_cast<int32_t>(ranks / (tp * pp));
  }
  int32_t dp(int64_t ranks) const { return data_ranks(ranks) / cp; }
};

/// Values that a search keeps. It varies the other settings.
struct KeptSettings {
  std::optional<int64_t> tp, pp, cp, ep, micro_size, virtual_stages, zero;
  std::optional<ShardGroup> shard_group;
  std::optional<PipelineKind> pipeline;
  std::optional<RecomputeKind> recompute;
};
template <class T, class Value>
bool allows(const std::optional<T>& kept, Value value) {
  return !kept || *kept == value;
}

/// Returns what parallel.auto keeps of a run's settings: what is given of them. Nothing
/// is kept without parallel.auto.
KeptSettings kept_settings(const RunConfig& config);

/// Writes the settings into a run's configuration for so many ranks, in place of what
/// parallel.auto would choose. What the file says of parallel.partition and
/// memory.recompute_layers belongs to another layout and goes.
void set_layout(RunConfig& config, const LayoutSettings& settings, int64_t ranks);

/// Returns a short name: "tp 8, pp 4, cp 1, dp 16, micro batch 1, 1f1b, zero 1 over 16,
/// recompute none".
std::string to_string(const LayoutSettings& settings, int64_t ranks);

/// Returns the settings as lines of a run file, with the heads of their sections.
std::vector<std::string> toml_lines(const LayoutSettings& settings, int64_t ranks);

/// Returns the name of a schedule or of a recomputation in a run file.
std::string pipeline_name(PipelineKind kind);
std::string recompute_name(RecomputeKind kind);

/// Returns the divisors of a number of at least 1, ascending.
std::vector<int32_t> divisors_of(int64_t number);

/// Returns tp, pp and cp of every mesh of so many ranks, the smallest tp first.
std::vector<LayoutSettings> meshes_of(int64_t ranks);

}  // namespace longhaul::plan
