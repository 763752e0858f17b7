#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/config/run_config.h"
#include "longhaul/families/model_config.h"
#include "longhaul/layout/layout_description.h"
#include "longhaul/rehearsal/script.h"

namespace longhaul::rehearsal {

/// Has the ranks computed by a device of this process, which meets every key of a run so:
/// an operation with the shapes and dtypes of its arguments.
struct OnDevice {
  at::Device device;
  bool validates = false;  ///< evaluates micro batches as a validation does
  /// The tokens of a prompt and what continues it; 0: no text is continued.
  int64_t sample_tokens = 0;
  /// Returns whether this process computes the kind of ranks of this number.
  std::function<bool(size_t kind)> computes;
};

/// What is rehearsed.
struct RehearsalInputs {
  const RunConfig& config;
  const ModelConfig& model;
  int64_t ranks = 1;
  layout::Placement placement = {};
  int64_t steps = 2;
  /// The most micro batches of a rank in a step; 0: all. The rest repeat what the first
  /// ones do.
  int64_t most_micro_batches = 0;
  int threads = 1;  ///< ranks that are played at the same time
  /// Called whenever a rank has been played, with their number and that of all that are
  /// to be played; by any thread, one at a time. May be empty.
  std::function<void(size_t done, size_t all)> told = {};
  /// Absent: the fake device plays all kinds.
  std::optional<OnDevice> on_device = {};
};

/// What a rank did that was played, and all ranks that do the same.
struct PlayedRank {
  int rank = 0;
  std::string place;        ///< "pp 0 dp 0 cp 0 tp 0"
  int64_t ranks = 1;        ///< how many do the same
  int64_t state_bytes = 0;  ///< in use before the first step
  int64_t peak_bytes = 0;   ///< the most that was in use at once
  std::shared_ptr<Script> script;
};

struct Rehearsal {
  std::vector<PlayedRank> played;  ///< in the order of their first ranks
  std::vector<ScriptedRank> ranks;
  std::vector<GroupMembers> groups;
  int64_t micro_batches = 0;  ///< of a rank in a step, as played
  int64_t all_micro_batches = 0;
};

/// Returns the most micro batches that a rehearsal plays where nobody says another
/// number: as many as fill the pipeline twice. More of them hold no more memory and bring
/// no operation in another order.
int64_t enough_micro_batches(const RunConfig& config,
                             const layout::LayoutDescription& of);

/// Plays the first steps of every distinct rank of a run. It builds the rank's session
/// with the run's own code, on the fake device and with communicators that record, and
/// trains. install_device() must have been called. With `on_device` the kinds of this
/// process are computed there, one after the other, and nothing is recorded: what other
/// ranks would send has no meaning. Two ranks are alike if they hold
/// tensors of the same shapes at the same pp, cp and ep index. Throws the errors that a
/// start would throw, and those of an operation that the device lacks, with the rank's
/// place.
Rehearsal play_ranks(const RehearsalInputs& inputs);

/// Computes the same on the device of `inputs.on_device`, by this process as its own rank
/// of the run and with all others: so collectives of the device are met too. `world` has
/// the ranks of the run. Collective.
void compute_together(const RehearsalInputs& inputs,
                      const std::shared_ptr<comm::Communicator>& world);

}  // namespace longhaul::rehearsal
