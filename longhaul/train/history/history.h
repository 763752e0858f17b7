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
  int64_t updates = 0;  ///< steps whose update was applied to the weights
  /// Updates by parameter; absent in older checkpoints.
  std::optional<optim::UpdateCounts> counts;
  int64_t tokens = 0;       ///< positions trained on
  data::Cursor cursor;      ///< position in the data
  uint64_t batch_hash = 0;  ///< chain over all batches (data::chain_hash)
  std::vector<data::SourceCount>
      sources;           ///< what each source has given, as the cursor says
  GuardState guard;      ///< what judging the next steps needs
  SetLosses validation;  ///< what judging the next validations needs
  /// Tokens that each expert got in the last step, by layer; what experts.balance =
  /// "global" needs. The list is empty for a model without experts.
  std::vector<std::vector<int64_t>> expert_loads;
  std::string config_toml;  ///< resolved settings
  /// The basis of the learning rates. After from_json() it is that of the checkpoint;
  /// older checkpoints have none.
  std::optional<optim::ScheduleBasis> schedule;
  /// The row of the embedding whose look-ups this run does not train. Older checkpoints
  /// have no such row: their runs train all rows.
  std::optional<int64_t> padding_row;
  /// The hashes of the weights with which a run on pairs began (reference.h); empty in
  /// other runs.
  std::string reference;
  std::string model;  ///< config.json with overrides applied; older states have none
  std::string base;   ///< hash of the base of the run's adapter; empty without one
  Json fingerprint;   ///< numerics_fingerprint() of all ranks

  Json to_json() const;
  /// Throws InputError that names the field which is missing or wrong, and ConfigError
  /// where another version of this program wrote the file: then nothing is wrong with the
  /// files.
  static History from_json(const Json& json);
};

}  // namespace longhaul::train
