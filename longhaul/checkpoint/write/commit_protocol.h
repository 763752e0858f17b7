#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/checkpoint/state_tensor.h"

namespace longhaul {
class RunLock;
}

namespace longhaul::checkpoint {

// The steps of one save, each by one rank alone and without communication: the ranks meet
// in the directory. A rank's sidecar, which appears in one step when all that it
// describes is durable, tells rank 0 that the rank has ended; so a checkpoint is
// committed as soon as the last byte is on disk, whatever the training step is doing
// meanwhile. Every name but the manifest's carries the attempt, so that an attempt that
// was cut off and goes on writing touches no file of its successor.

/// Where a save writes: the same on all ranks.
struct SaveTarget {
  int64_t step = 0;
  fs::path dir;           ///< the step directory
  std::string prefix;     ///< of this save's files: "a1_"
  bool replaces = false;  ///< dir holds a valid checkpoint of the same step
};

/// What goes into the manifest besides the files of the ranks.
struct CommitContent {
  int attempt = 1;
  std::string build;
  Json layout;
  Json state;
  std::vector<CarriedFile> hf;
  int ranks = 1;
  const RunLock* lock = nullptr;  ///< checked before the commit; may be null
};

/// Rank 0: makes the step directory and removes what a save that never ended left there.
SaveTarget prepare_step(const fs::path& checkpoints, int64_t step, int attempt);

/// Writes a rank's tensors and then its sidecar, both durable. Returns false, without a
/// sidecar, when `cancelled` says so.
bool write_rank(const SaveTarget& target, int rank,
                const std::vector<StateTensor>& tensors,
                const std::function<bool()>& cancelled = {});

/// Whether this rank's part of the save is durable.
bool rank_is_written(const SaveTarget& target, int rank);

/// Rank 0, when all ranks are written: hf/, state.json and last the manifest, which makes
/// it a checkpoint. Returns its bytes. Error (Internal) when another attempt holds the
/// run or has committed this step meanwhile.
uint64_t commit_step(const SaveTarget& target, const CommitContent& content);

/// Reads this rank's data back from the device and compares its blocks with their hashes.
/// InputError names the first that differs. Returns early when `cancelled` says so.
void read_back(const SaveTarget& target, int rank,
               const std::function<bool()>& cancelled = {});

/// Rank 0: what was committed and then read back wrong is no checkpoint; its manifest
/// goes, durably, unless a later attempt's has taken its place.
void withdraw_step(const SaveTarget& target);

/// Rank 0: removes what this save wrote, but nothing that the manifest names, and the
/// step directory when nothing else is in it.
void abandon_step(const SaveTarget& target) noexcept;

}  // namespace longhaul::checkpoint
