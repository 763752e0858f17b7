#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhaul/checkpoint/mirror/mirror_listing.h"

namespace longhaul::checkpoint {

// These functions bring a committed checkpoint into a mirror. Each function is called by
// one rank alone and does not communicate. Rank 0 begins a step, then each rank sends its
// files, and rank 0 ends the step once all of them are there. Rank 0 keeps one listing
// from step to step, so that the mirror need not be listed again for each step.

/// Who writes a mirror, for claim_mirror().
struct MirrorClaim {
  /// The marker of the directory of checkpoints, with the names that the mirror was given
  /// from there. Where it has no names, the mirror may also be that of a run in
  /// `given_up`: an earlier run of the same run.dir.
  run::CheckpointsMarker marker;
  std::vector<std::string> given_up;
  /// Writes a new name into the directory's marker, durably.
  std::function<void(const std::string& name)> note;
};

/// Gives the mirror a new name, which is the last of `claim.marker.names` afterwards.
/// Takes the mirror where it has no name, or one of `claim.marker.names`. Throws
/// InputError, and overwrites nothing, where another run writes the mirror, or a start of
/// this run that the directory of checkpoints does not know: a later start, or one in
/// another directory. Supersedes the checkpoints of runs that were given up. Where the
/// mirror has lost its name, supersedes those of later starts of this run. Called on rank
/// 0 only.
void claim_mirror(MirrorStore& store, MirrorClaim& claim);

/// Throws as claim_mirror() does where the mirror has another name than the last of
/// `claim.marker.names`.
void prove_claim(MirrorStore& store, const MirrorClaim& claim);

/// Prepares a step for its files. Removes objects of the same names, which the run left
/// there before it went back to an earlier step. Takes away the manifests of later steps
/// up to this attempt's, since no start must find them: "superseded.a1.json" keeps their
/// text. Returns the steps that were taken away. Called on rank 0 only.
std::vector<int64_t> begin_mirror_step(MirrorListing& listing, const Manifest& manifest,
                                       int attempt);

/// Takes away the manifests of all steps after `step`, as begin_mirror_step() does.
std::vector<int64_t> supersede_mirror(MirrorListing& listing, int64_t step, int attempt);

/// Sends this rank's files of a checkpoint; rank 0 also sends state.json and hf/. If more
/// ranks wrote the checkpoint than send it, a rank sends the files of several. Returns
/// the bytes that were sent. Throws InputError where a file has another hash than the
/// manifest says: then the local checkpoint is damaged. Ends early where `cancelled`
/// returns true.
uint64_t send_mirror_files(MirrorStore& store, const fs::path& step_dir,
                           const Manifest& manifest, int rank, int ranks,
                           const std::function<bool()>& cancelled = {});

/// Lists the step until all files of the manifest are in the mirror, for `patience`
/// seconds at most. Then writes the manifest, which makes the step a checkpoint, and
/// takes away the step's manifests of other attempts. Throws TemporaryError where a file
/// does not come. `look` is called again and again and may throw. Called on rank 0 only.
void end_mirror_step(MirrorListing& listing, const Manifest& manifest, double patience,
                     const std::function<void()>& look = {});

/// Deletes what is old in a mirror: steps with `keep` newer whole checkpoints that are no
/// milestones, manifest first, and what is left of older steps that never ended. Does
/// nothing with `keep` 0. Returns the deleted steps. Called on rank 0 only.
std::vector<int64_t> thin_out_mirror(MirrorListing& listing, int64_t keep,
                                     int64_t milestone_every);

}  // namespace longhaul::checkpoint
