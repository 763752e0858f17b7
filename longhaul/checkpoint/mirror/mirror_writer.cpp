#include "longhaul/checkpoint/mirror/mirror_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/json.h"
#include "longhaul/config/due.h"
#include "longhaul/run/files.h"

namespace longhaul::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Returns the files that a rank sends.
std::vector<Manifest::FileEntry> files_of(const Manifest& manifest, int rank, int ranks) {
  std::vector<Manifest::FileEntry> files;
  for (size_t r = static_cast<size_t>(rank); r < manifest.ranks.size();
       r += static_cast<size_t>(ranks)) {
    files.push_back(manifest.ranks[r].data);
    files.push_back(manifest.ranks[r].sidecar);
  }
  if (rank > 0) return files;
  files.push_back(manifest.state);
  files.insert(files.end(), manifest.hf.begin(), manifest.hf.end());
  return files;
}

bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::ranges::find(all, one) != all.end();
}

[[noreturn]] void refuse_claim(MirrorStore& store, const MirrorClaim& claim,
                               const run::MirrorOwner& owner) {
  if (owner.run != claim.marker.run) {
    fail_input("mirror",
               "{} holds the checkpoints of another run ({}), and this is run {}; give "
               "checkpoint.mirror an address of its own",
               store.place(), owner.run, claim.marker.run);
  }
  std::string newest = "no step";
  const MirrorListing listing(store);
  for (const int64_t step : listing.steps()) {
    if (listing.manifests(step).empty()) continue;
    newest = fmt::format("step {} (checkpoint.resume = {} goes on from it)", step, step);
    break;
  }
  fail_input(
      "mirror",
      "{0} is written by start {1} of this run, of which this directory of checkpoints "
      "does not know: a later start, or one in another directory, or this directory is "
      "an older copy. The newest there is {3}. End one of the two, or give one a "
      "checkpoint.mirror of its own. Where the other is gone for good, delete {0}/{2}",
      store.place(), owner.attempt, run::kCheckpointsOwnerFile, newest);
}

}  // namespace

void claim_mirror(MirrorStore& store, MirrorClaim& claim) {
  run::CheckpointsMarker& self = claim.marker;
  const auto owner = read_mirror_owner(store);
  const bool same_run = owner && owner->run == self.run;
  const bool begins_anew = self.names.empty() && !claim.given_up.empty();
  const bool known = !owner ||
                     (owner->name.empty() ? same_run && owner->attempt <= self.attempt
                                          : contains(self.names, owner->name)) ||
                     (begins_anew && contains(claim.given_up, owner->run));
  if (!known) refuse_claim(store, claim, *owner);
  if (!same_run) {
    const int first = owner || begins_anew ? 0 : self.attempt + 1;
    // Takes away the steps of the runs that this run may replace. The files of any other
    // run are left for a person to delete.
    std::vector<std::string> runs = claim.given_up;
    runs.push_back(self.run);
    if (owner) runs.push_back(owner->run);
    for (const std::string& run : runs) {
      MirrorListing listing(store, run);
      for (const int64_t step : listing.steps()) {
        for (const int of : listing.manifests(step)) {
          if (of >= first) listing.take_away(step, of);
        }
      }
    }
  }
  const std::string name = run::new_identity();
  // The directory notes the name before the mirror has it. So the directory knows the
  // name even if this process ends now.
  if (claim.note) claim.note(name);
  self.names.push_back(name);
  const Json told = {{"run", self.run}, {"attempt", self.attempt}, {"name", name}};
  store.put_text(json_text(told) + "\n", run::kCheckpointsOwnerFile);
}

void prove_claim(MirrorStore& store, const MirrorClaim& claim) {
  const auto owner = read_mirror_owner(store);
  if (owner && owner->name != claim.marker.names.back()) {
    refuse_claim(store, claim, *owner);
  }
}

std::vector<int64_t> supersede_mirror(MirrorListing& listing, int64_t step, int attempt) {
  std::vector<int64_t> taken;
  for (const int64_t later : listing.steps()) {
    if (later <= step) break;
    bool any = false;
    for (const int of : listing.manifests(later)) {
      // The files of a later attempt stay, since that attempt knows more than this one.
      if (of > attempt) continue;
      any = listing.take_away(later, of) || any;
    }
    if (any) taken.push_back(later);
  }
  return taken;
}

std::vector<int64_t> begin_mirror_step(MirrorListing& listing, const Manifest& manifest,
                                       int attempt) {
  const int64_t step = manifest.step;
  std::vector<int64_t> taken =
      supersede_mirror(listing, step, std::max(attempt, manifest.attempt));
  // The manifest is removed first, so that no reader finds it without its files.
  std::vector<std::string> names = {mirror_manifest_name(manifest.attempt)};
  for (const Manifest::FileEntry& file : manifest.files()) names.push_back(file.name);
  for (const std::string& name : names) {
    if (listing.objects(step).contains(name)) listing.remove(step, name);
  }
  return taken;
}

uint64_t send_mirror_files(MirrorStore& store, const fs::path& step_dir,
                           const Manifest& manifest, int rank, int ranks,
                           const std::function<bool()>& cancelled) {
  uint64_t bytes = 0;
  for (const Manifest::FileEntry& file : files_of(manifest, rank, ranks)) {
    if (cancelled && cancelled()) return bytes;
    const fs::path path = join_inside(step_dir, file.name, "mirror");
    const std::string name = mirror_name(manifest.step, file.name);
    const std::string hash = store.put(path, name);
    if (hash != file.hash) {
      Failure::of([&] { store.remove(name); });
      fail_input(
          "mirror",
          "{}: its bytes have hash {}, and the manifest says {}: the file is damaged, "
          "and step {} is not mirrored; `longhaul verify` names the block",
          path.string(), hash, file.hash, manifest.step);
    }
    bytes += file.size;
  }
  return bytes;
}

void end_mirror_step(MirrorListing& listing, const Manifest& manifest, double patience,
                     const std::function<void()>& look) {
  const auto end = Clock::now() + std::chrono::duration<double>(patience);
  auto pause = milliseconds(200);
  while (true) {
    if (look) look();
    listing.look_again(manifest.step);
    const auto missing = missing_in(listing.objects(manifest.step), manifest);
    if (!missing) break;
    if (Clock::now() >= end) {
      fail_temporary("mirror", "step {} is not whole in {} after {:.0f} s: {}",
                     manifest.step, listing.store().place(), patience, *missing);
    }
    // Sleeps in short parts, so that `look` is asked often.
    for (auto slept = milliseconds(0); slept < pause && Clock::now() < end;
         slept += milliseconds(200)) {
      std::this_thread::sleep_for(milliseconds(200));
      if (look) look();
    }
    pause = std::min(2 * pause, milliseconds(10'000));
  }
  listing.put_manifest(manifest);
  for (const int of : listing.manifests(manifest.step)) {
    if (of != manifest.attempt) listing.take_away(manifest.step, of);
  }
}

std::vector<int64_t> thin_out_mirror(MirrorListing& listing, int64_t keep,
                                     int64_t milestone_every) {
  std::vector<int64_t> deleted;
  if (keep <= 0) return deleted;
  int64_t whole = 0;
  for (const int64_t step : listing.steps()) {
    const bool leftover = listing.manifests(step).empty();
    const bool milestone = config::is_due(milestone_every, step);
    if (leftover ? whole > 0 : whole >= keep && !milestone) {
      if (listing.has_strangers(step)) continue;
      listing.remove_step(step);
      deleted.push_back(step);
    } else if (!leftover && whole < keep && listing.is_whole(step)) {
      ++whole;
    }
  }
  return deleted;
}

}  // namespace longhaul::checkpoint
