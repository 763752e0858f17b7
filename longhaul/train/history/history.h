#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/data/order/phase_stream.h"
#include "longhaul/optim/run_schedule.h"
#include "longhaul/optim/update_counts.h"
#include "longhaul/train/history/set_losses.h"
#include "longhaul/train/history/step_guard.h"

namespace longhaul::train {

/// How far a run has come: what a checkpoint's state.json holds besides the tensors.
struct History {
  int64_t step = 0;     ///< optimizer steps done
  int64_t updates = 0;  ///< of them applied to the weights
  /// The same by parameter. Absent: an older state, which does not say it.
  std::optional<optim::UpdateCounts> counts;
  int64_t tokens = 0;       ///< positions trained on
  data::Cursor cursor;      ///< position in the data
  uint64_t batch_hash = 0;  ///< chain over all batches; see data::chain_hash
  std::vector<data::SourceCount> sources;  ///< what each source gave, as the cursor says
  GuardState guard;                        ///< what judging the next steps needs
  SetLosses validation;                    ///< the same for validations
  std::string config_toml;                 ///< resolved settings
  /// What rates follow; as read, that of the checkpoint: older states have none.
  std::optional<optim::ScheduleBasis> schedule;
  /// The row of the embedding whose look-ups this run does not train; older states have
  /// none: their runs train all.
  std::optional<int64_t> padding_row;
  std::string model;  ///< config.json, overrides applied; older states have none
  Json fingerprint;   ///< numerics_fingerprint

  Json to_json() const;
  /// InputError names the field that is missing or wrong; ConfigError where the state is
  /// of another version of this program, which says nothing against the files.
  static History from_json(const Json& json);
};

}  // namespace longhaul::train
