#include "longhaul/checkpoint/mirror/mirror_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/json.h"
#include "longhaul/run/files.h"

namespace longhaul::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::string name_in(int64_t step, const std::string& name) {
  return run::step_directory_name(step) + "/" + name;
}

/// Takes a manifest away and keeps its text under another name.
void take_away(MirrorStore& store, int64_t step, int attempt) {
  const std::string name = name_in(step, mirror_manifest_name(attempt));
  if (const auto text = store.read_text(name)) {
    store.put_text(*text, name_in(step, superseded_manifest_name(attempt)));
  }
  store.remove(name);
}

std::vector<int64_t> take_later_away(MirrorStore& store, const MirrorListing& listing,
                                     int64_t step, int attempt) {
  std::vector<int64_t> taken;
  for (const int64_t later : listing.steps()) {
    if (later <= step) break;
    bool any = false;
    for (const int of : listing.manifests(later)) {
      // A later attempt knows better than this one what has happened.
      if (of > attempt) continue;
      take_away(store, later, of);
      any = true;
    }
    if (any) taken.push_back(later);
  }
  return taken;
}

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

/// Deletes a step, its manifests first: what is half deleted is no checkpoint.
void remove_step(MirrorStore& store, const MirrorListing& listing, int64_t step) {
  for (const int attempt : listing.manifests(step)) {
    store.remove(name_in(step, mirror_manifest_name(attempt)));
  }
  store.remove_all(run::step_directory_name(step));
}

}  // namespace

void claim_mirror(MirrorStore& store, const std::string& run, int attempt,
                  const std::string& former) {
  const auto owner = read_mirror_owner(store);
  if (owner && owner->run == run && owner->attempt == attempt) return;
  if (owner && owner->run == run && owner->attempt > attempt) {
    throw InputError(
        "mirror",
        fmt::format("{} is written by attempt {} of this run, and this is attempt {}: "
                    "another start goes on from the mirror; end one of the two, or give "
                    "one a checkpoint.mirror of its own",
                    store.place(), owner->attempt, attempt));
  }
  const bool own = owner && (owner->run == run || owner->run == former);
  if (owner && !own) {
    throw InputError(
        "mirror",
        fmt::format("{} holds the checkpoints of another run ({}), and this is run {}; "
                    "give checkpoint.mirror an address of its own",
                    store.place(), owner->run, run));
  }
  if (owner && owner->run != run) {
    supersede_mirror(store, -1, std::numeric_limits<int>::max());
  }
  store.put_text(json_text(Json{{"run", run}, {"attempt", attempt}}) + "\n",
                 run::kCheckpointsOwnerFile);
}

std::vector<int64_t> supersede_mirror(MirrorStore& store, int64_t step, int attempt) {
  return take_later_away(store, MirrorListing(store), step, attempt);
}

std::vector<int64_t> begin_mirror_step(MirrorStore& store, const Manifest& manifest,
                                       int attempt) {
  const int64_t step = manifest.step;
  const MirrorListing listing(store);
  std::vector<int64_t> taken =
      take_later_away(store, listing, step, std::max(attempt, manifest.attempt));
  const auto& objects = listing.objects(step);
  // The manifest goes first, so that no reader finds it beside other files.
  std::vector<std::string> names = {mirror_manifest_name(manifest.attempt)};
  for (const Manifest::FileEntry& file : manifest.files()) names.push_back(file.name);
  for (const std::string& name : names) {
    if (objects.contains(name)) store.remove(name_in(step, name));
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
    const std::string name = name_in(manifest.step, file.name);
    const std::string hash = store.put(path, name);
    if (hash != file.hash) {
      Failure::of([&] { store.remove(name); });
      throw InputError(
          "mirror",
          fmt::format("{}: its bytes have hash {}, and the manifest says {}: the file is "
                      "damaged, and step {} is not mirrored; `longhaul verify` names the "
                      "block",
                      path.string(), hash, file.hash, manifest.step));
    }
    bytes += file.size;
  }
  return bytes;
}

void end_mirror_step(MirrorStore& store, const Manifest& manifest, double patience,
                     const std::function<void()>& look) {
  const auto end = Clock::now() + std::chrono::duration<double>(patience);
  auto pause = milliseconds(200);
  while (true) {
    if (look) look();
    const MirrorListing listing(store, manifest.step);
    const auto missing = missing_in(listing.objects(manifest.step), manifest);
    if (!missing) break;
    if (Clock::now() >= end) {
      throw TemporaryError("mirror",
                           fmt::format("step {} is not whole in {} after {:.0f} s: {}",
                                       manifest.step, store.place(), patience, *missing));
    }
    // Sleeps in short parts, so that `look` is asked often.
    for (auto slept = milliseconds(0); slept < pause && Clock::now() < end;
         slept += milliseconds(200)) {
      std::this_thread::sleep_for(milliseconds(200));
      if (look) look();
    }
    pause = std::min(2 * pause, milliseconds(10'000));
  }
  store.put_text(json_text(manifest.to_json(), 1),
                 name_in(manifest.step, mirror_manifest_name(manifest.attempt)));
}

std::vector<int64_t> thin_out_mirror(MirrorStore& store, int64_t keep,
                                     int64_t milestone_every) {
  std::vector<int64_t> deleted;
  if (keep <= 0) return deleted;
  const MirrorListing listing(store);
  int64_t whole = 0;
  for (const int64_t step : listing.steps()) {
    const bool leftover = listing.manifests(step).empty();
    const bool milestone = milestone_every > 0 && step % milestone_every == 0;
    if (leftover ? whole > 0 : whole >= keep && !milestone) {
      remove_step(store, listing, step);
      deleted.push_back(step);
    } else if (!leftover && whole < keep && listing.read(step)) {
      ++whole;
    }
  }
  return deleted;
}

}  // namespace longhaul::checkpoint
