#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "longhaul/checkpoint/manifest.h"
#include "longhaul/checkpoint/mirror/mirror_store.h"
#include "longhaul/run/run_past.h"

namespace longhaul::checkpoint {

// A mirror has the names of the directory of checkpoints:
//   of_run.json                                  the run that writes the mirror
//   step_00000005/a1_rank_00000.safetensors ...  the files of a checkpoint
//   step_00000005/manifest.a1.json               last of all: the manifest of attempt 1
//   run/results.json ...                         what the run says about itself
// A step is a checkpoint only if it has a manifest whose files are all there. Where
// several attempts have mirrored a step, the highest such attempt counts.

/// Returns the name in the mirror of a file of a step.
std::string mirror_name(int64_t step, const std::string& name);
/// Returns "manifest.a3.json".
std::string mirror_manifest_name(int attempt);
/// Returns the name that a manifest gets when no start may find it any more.
std::string superseded_manifest_name(int attempt);
/// Returns the attempt in the name of a mirror's manifest; nothing for other names.
std::optional<int> mirror_manifest_attempt(std::string_view name);

/// A whole checkpoint of a mirror.
struct MirrorStep {
  int64_t step = 0;
  int attempt = 0;
  Manifest manifest;
  std::string manifest_text;  ///< the bytes of manifest.json
};

/// What one look at a mirror has found, and what was changed through this object since.
/// After a function has thrown, the object may differ from the mirror.
class MirrorListing {
 public:
  /// Lists the mirror of `run`, or one step of it. Checkpoints that another run has saved
  /// there do not count, and stay as they are. With an empty `run` everything counts.
  explicit MirrorListing(MirrorStore& store, std::string run = {},
                         std::optional<int64_t> step = std::nullopt);

  /// Returns the steps of which there is any object, the newest first.
  std::vector<int64_t> steps() const;
  /// Returns the objects of a step: their size by their name within the step.
  const std::map<std::string, uint64_t>& objects(int64_t step) const;
  /// Returns the attempts that have a manifest of the step, the highest first.
  std::vector<int> manifests(int64_t step) const;
  /// Returns the checkpoint of a step, for which manifests are read; nothing where none
  /// is whole. If given, `skipped` receives a line for each manifest that was passed
  /// over. Throws what the store throws: a store that refuses has not lost a checkpoint.
  std::optional<MirrorStep> read(int64_t step,
                                 std::vector<std::string>* skipped = nullptr) const;
  /// Returns the highest attempt that has written any object; 0 where there is none.
  int highest_attempt() const;

  /// Returns whether a step has a whole checkpoint. Reads its manifests only once.
  bool is_whole(int64_t step);
  /// Lists a step again, into which other ranks have written.
  void look_again(int64_t step);
  /// Writes the manifest of a step whose files are all there.
  void put_manifest(const Manifest& manifest);
  /// Returns whether another run's manifest is among those of a step. Reads them.
  bool has_strangers(int64_t step) const;
  /// Takes a manifest away and keeps its text under another name. Returns false, and does
  /// nothing, where the manifest is another run's.
  bool take_away(int64_t step, int attempt);
  /// Deletes an object of a step.
  void remove(int64_t step, const std::string& name);
  /// Deletes a step, its manifests first: what is half deleted is no checkpoint.
  void remove_step(int64_t step);
  MirrorStore& store() const { return store_; }

 private:
  void list(const std::string& below);

  MirrorStore& store_;
  std::string run_;
  std::map<int64_t, std::map<std::string, uint64_t>> steps_;
  std::set<int64_t> whole_;  ///< steps that were found whole
};

/// Returns the first file of a manifest that is not among the objects with its size, in
/// words; nothing where all are there.
std::optional<std::string> missing_in(const std::map<std::string, uint64_t>& objects,
                                      const Manifest& manifest);

/// Returns the run that writes the mirror, as of_run.json says; nothing where no run has
/// begun to write it.
std::optional<run::MirrorOwner> read_mirror_owner(MirrorStore& store);

}  // namespace longhaul::checkpoint
