#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/checkpoint/state_tensor.h"

namespace longhaul::run {
class RunLock;
}

namespace longhaul::checkpoint {

// The protocol of one save. Each function is called by one rank alone and does not
// communicate: ranks learn of each other by the files in the step directory. A rank's
// sidecar appears at once when everything that it describes is durable, and tells rank 0
// that the rank has finished. So a checkpoint is committed as soon as the last byte is on
// disk, whatever the training step is doing at that time. Every name but the manifest's
// contains the attempt, so that an attempt which was cut off and goes on writing touches
// no file of its successor.

/// Where a save writes; the same on all ranks.
struct SaveTarget {
  int64_t step = 0;
  fs::path dir;           ///< the step directory
  std::string prefix;     ///< prefix of this save's files: "a1_"
  bool replaces = false;  ///< whether `dir` holds a valid checkpoint of the same step
};

/// What the manifest contains besides the files of the ranks.
struct CommitContent {
  int attempt = 1;
  std::string run;  ///< Manifest::run
  std::string build;
  Json layout;
  Json state;
  std::vector<CarriedFile> hf;
  int ranks = 1;
  const run::RunLock* lock = nullptr;  ///< checked before the commit; may be null
};

/// Makes the step directory, and removes what a save that never ended has left there.
/// Called on rank 0 only.
SaveTarget prepare_step(const fs::path& checkpoints, int64_t step, int attempt);

/// Writes a rank's tensors and then its sidecar, both durably. Returns false, without a
/// sidecar, when `cancelled` returns true.
bool write_rank(const SaveTarget& target, int rank,
                const std::vector<StateTensor>& tensors,
                const std::function<bool()>& cancelled = {});

/// Returns whether this rank's part of the save is durable.
bool rank_is_written(const SaveTarget& target, int rank);

/// Writes hf/, state.json and last the manifest, which makes the directory a checkpoint.
/// Must be called when all ranks are written. Returns the bytes of the checkpoint. Throws
/// Error (Internal) when another attempt holds the run, or has committed this step since
/// prepare_step. Called on rank 0 only.
uint64_t commit_step(const SaveTarget& target, const CommitContent& content);

/// Reads this rank's data back from the device and compares its blocks with their hashes.
/// Throws InputError that names the first block that differs. Returns early when
/// `cancelled` returns true.
void read_back(const SaveTarget& target, int rank,
               const std::function<bool()>& cancelled = {});

/// Removes the manifest of a checkpoint that was committed and then read back wrong,
/// durably, unless a later attempt's manifest has taken its place. Called on rank 0 only.
void withdraw_step(const SaveTarget& target);

/// Removes what this save wrote, except files that the manifest names, and the step
/// directory when it is empty then. Called on rank 0 only.
void abandon_step(const SaveTarget& target) noexcept;

}  // namespace longhaul::checkpoint
