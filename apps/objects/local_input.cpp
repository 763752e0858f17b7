#include "apps/objects/local_input.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "apps/program.h"
#include "longhaul/base/error.h"
#include "longhaul/checkpoint/mirror/mirror_listing.h"
#include "longhaul/data/bert/bert_record.h"
#include "longhaul/objects/address.h"
#include "longhaul/objects/local_copy.h"
#include "longhaul/run/files.h"
#include "longhaul/system/terminal.h"

namespace longhaul::apps {

namespace {

/// What an address names if it is the address of a mirror: the mirror, and a step of it.
struct Meant {
  objects::Address mirror;
  std::optional<int64_t> step;  ///< nothing: the newest
};

Meant meant_by(const objects::Address& address) {
  const size_t slash = address.key.rfind('/');
  if (slash == std::string::npos) return {address, std::nullopt};
  const auto step = run::step_of(address.key.substr(slash + 1));
  if (!step) return {address, std::nullopt};
  return {{address.bucket, address.key.substr(0, slash)}, step};
}

/// Finds the step `wanted` in a mirror, or the newest whole step if `wanted` is empty.
/// Warns of newer steps that are not whole. Returns nothing if the mirror has no
/// checkpoint.
std::optional<checkpoint::MirrorStep> find_step(checkpoint::MirrorStore& store,
                                                std::optional<int64_t> wanted) {
  const checkpoint::MirrorListing listing(store, /*run=*/"", wanted);
  std::vector<std::string> skipped;
  for (const int64_t step : listing.steps()) {
    if (listing.manifests(step).empty()) continue;
    auto found = listing.read(step, &skipped);
    if (!found) continue;
    if (!skipped.empty()) {
      say_warning(fmt::format("{}: {} is {}; {}", store.place(),
                              wanted ? "the checkpoint" : "newest whole checkpoint",
                              run::step_directory_name(step), fmt::join(skipped, "; ")));
    }
    return found;
  }
  if (skipped.empty()) return std::nullopt;
  fail_input("mirror", "{}: {}: {}", store.place(),
             wanted ? fmt::format("step {} is not whole", *wanted)
                    : "no checkpoint is whole; name another mirror, or wait until "
                      "the run has copied one",
             fmt::join(skipped, "; "));
}

using Hashes = std::map<std::string, std::string>;

/// Returns how to fetch objects whose hashes are known: `hashes` has them by the objects'
/// keys. A copy with another hash is refused.
objects::CopyRequests requests_for(Hashes hashes,
                                   const std::shared_ptr<objects::ObjectStore>& store) {
  objects::CopyRequests requests;
  requests.fetch = [store, hashes = std::move(hashes)](const objects::ObjectInfo& object,
                                                       const fs::path& to) {
    const std::string& wanted = hashes.at(object.address.key);
    std::string hash = store->fetch(object, to);
    if (hash == wanted) return hash;
    // The transfer from the store may have damaged the bytes, so they are fetched once
    // more.
    fs::remove(to);
    hash = store->fetch(object, to);
    if (hash == wanted) return hash;
    fail_input("mirror",
               "{}: its bytes have hash {}, and the manifest says {}: the copy in the "
               "mirror is damaged",
               object.address.text(), hash, wanted);
  };
  requests.go_on = [store] { store->require_going(); };
  return requests;
}

/// Returns a local copy of a checkpoint that a mirror holds: of the step that the address
/// names, or of the mirror's newest whole step. It returns null if the address names an
/// object and not a mirror. The copy stays on this machine while the result lives. Warns
/// of newer steps that are not whole. Throws InputError if the step that the address
/// names is not whole, if the mirror has steps but none is whole, and if bytes of the
/// copy do not match their manifest. `tell` gets lines for people. With `prove_anew` the
/// copy is compared with its hashes even if that was done before.
std::shared_ptr<const fs::path> mirrored_checkpoint(
    const objects::Address& address, const objects::Access& objects,
    const std::function<void(const std::string&)>& tell, bool prove_anew) {
  // The object is looked up by its key, since a user who may not list the bucket can
  // still read an object of it.
  const bool is_object =
      !address.key.empty() && objects.store()->look(address).has_value();
  if (is_object) return nullptr;
  const Meant meant = meant_by(address);
  const auto mirror = checkpoint::open_mirror(meant.mirror);
  const auto step = find_step(*mirror, meant.step);
  if (!step) return nullptr;
  const objects::Address prefix = meant.mirror / run::step_directory_name(step->step);
  Hashes hashes;
  for (const auto& file : step->manifest.files()) {
    hashes[(prefix / file.name).key] = file.hash;
  }
  std::vector<objects::ObjectInfo> files =
      objects.store()->list(prefix, /*versions=*/true);
  std::erase_if(files, [&](const objects::ObjectInfo& file) {
    return !hashes.contains(file.address.key);
  });
  if (files.size() != hashes.size()) {
    throw TemporaryError("mirror", prefix.text() +
                                       ": files of it were deleted while it was looked "
                                       "at; start again");
  }
  objects::LocalCopies copies(requests_for(std::move(hashes), objects.store()),
                              objects::default_cache(), /*most_bytes=*/0, tell,
                              objects.paths());
  if (prove_anew) copies.prove_anew();
  auto copy = copies.hold(prefix, std::move(files), /*waits=*/false);
  // In the mirror the manifest's name contains the attempt, so the copy has no manifest
  // of the usual name yet.
  const fs::path manifest = *copy / run::kManifestFile;
  if (!fs::exists(manifest) || read_text(manifest) != step->manifest_text) {
    write_text_atomic(manifest, step->manifest_text);
  }
  return copy;
}

void tell(const std::string& line) {
  fmt::print(stderr, "{}\n", system::printable(line));
}

}  // namespace

StopObjectsAtSignal::StopObjectsAtSignal(const system::SignalWatch& signals,
                                         const objects::Access& objects)
    : watch_([&signals, objects](const std::stop_token& stop) {
        system::leave_signals_to_main_thread();
        while (!stop.stop_requested() && signals.raised() == 0) {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        if (signals.raised() != 0) objects.store()->stop();
      }) {}

LocalCheckpoint::LocalCheckpoint(const std::string& named, const objects::Access& objects,
                                 bool prove_anew) {
  if (objects::is_address(named)) {
    copy_ = mirrored_checkpoint(objects::parse_address(named), objects, tell, prove_anew);
  }
  path_ = copy_ ? copy_->string() : local_input(named, objects, prove_anew);
}

std::string local_input(const std::string& named, const objects::Access& objects,
                        bool prove_anew) {
  if (!objects::is_address(named)) return named;
  objects::CopyPlace place;
  place.tell = tell;
  place.prove_anew = prove_anew;
  objects.keep_copies(std::move(place));
  return objects.readable(named).string();
}

objects::OutputUse output_use(objects::OutputUse use) {
  use.last = {"model.safetensors.index.json",
              "config.json",
              "state.json",
              "dataset_info.json",
              data::kBertRecordName,
              "store.json",
              std::string(run::kManifestFile)};
  use.tell = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  use.warn = say_warning;
  return use;
}

}  // namespace longhaul::apps
