#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/config/rules.h"
#include "longhaul/families/model_config.h"
#include "longhaul/layout/mesh_shape.h"

namespace longhaul::layout {

// These are the rules of a layout that need the model. A broken rule is a value with its
// numbers (config/rules.h). A check takes less than a microsecond and throws nothing, so
// that a search may check a hundred thousand layouts of one model.

/// The numbers of a model that the rules need, taken once from its description. The
/// description must outlive this object.
struct ModelLimits {
  explicit ModelLimits(const ModelDescription& model);

  const ModelDescription* model;
  int64_t layers = 0;
  int64_t parameters = 0;
  std::vector<int64_t> experts;      ///< numbers of experts of a layer, each once
  std::vector<format::Heads> heads;  ///< of attentions, ascending, each once
  /// The parameters that split by single rows or columns, each narrower than all that
  /// come before it in the model.
  std::vector<const ParameterDescription*> narrow;

  /// Returns the first parameter with fewer rows or columns to split than `tp`, or null
  /// if there is none.
  const ParameterDescription* narrower_than(int64_t tp) const;
};

using config::BrokenRule;

/// Returns the broken rules that need no number of ranks: those between settings, and
/// those between settings and the model.
std::vector<BrokenRule> broken_without_ranks(const RunConfig& config,
                                             const ModelLimits& limits);

/// Returns the broken rules of the model on `ranks` ranks. If `ranks` is no multiple of
/// the ranks of a model replica, the other rules of the model are not checked. A value of
/// memory.gathered_gb above 0 is checked last, and only with zero = 3 and if no other
/// rule is broken. That check takes milliseconds, because it places the parameters of a
/// rank of each stage.
std::vector<BrokenRule> broken_on_ranks(const RunConfig& config,
                                        const ModelLimits& limits, int64_t ranks,
                                        const Placement& placement = {});

/// Returns the ranks of dp x cp that share one copy of the state, or the rule that is
/// broken.
std::variant<int, BrokenRule> shard_group_size(const RunConfig& config,
                                               const MeshShape& shape,
                                               const Placement& placement);

/// Returns the number of key heads of the layers with fewer key heads than `tp`, or 0 if
/// there are no such layers.
int64_t shared_key_heads(int64_t tp, const ModelLimits& limits);

/// Returns the message about a broken rule. `file` is the config.json that the message
/// names.
config::Refusal refusal_of(const BrokenRule& broken, const RunConfig& config,
                           const ModelLimits& limits, const fs::path& file);

/// Throws ConfigError for the first of broken_without_ranks, if there is one. Does
/// nothing where parallel.auto has yet to choose the layout.
void check_against_model(const RunConfig& config, const ModelConfig& model);

}  // namespace longhaul::layout
