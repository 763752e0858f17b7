#pragma once

#include "longhaul/config/run_config.h"

// These functions say when a checkpoint is due.

namespace longhaul::config {

/// Returns whether an event that comes every `every` steps comes after this step. With 0
/// the event never comes.
constexpr bool is_due(int64_t every, int64_t step) {
  return every > 0 && step % every == 0;
}

/// Returns whether a checkpoint is due after this step by the number of steps alone.
/// Saves by the clock (checkpoint.every_minutes) do not count.
inline bool save_is_due(const CheckpointSection& saves, int64_t step) {
  return is_due(saves.every, step) || is_due(saves.milestone_every, step);
}

/// Returns whether a checkpoint comes after `step` and before `last_step`.
inline bool save_comes_between(const CheckpointSection& saves, int64_t step,
                               int64_t last_step) {
  const auto comes = [&](int64_t every) {
    return every > 0 && step / every * every + every < last_step;
  };
  return comes(saves.every) || comes(saves.milestone_every) ||
         (saves.every_minutes > 0.0 && step + 1 < last_step);
}

/// Returns whether a run saves at its end alone.
inline bool saves_once(const CheckpointSection& saves) {
  return saves.every == 0 && saves.every_minutes == 0.0 && saves.milestone_every == 0;
}

}  // namespace longhaul::config
