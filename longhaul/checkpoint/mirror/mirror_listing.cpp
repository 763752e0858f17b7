#include "longhaul/checkpoint/mirror/mirror_listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/json/json_fields.h"
#include "longhaul/base/numbers.h"
#include "longhaul/run/files.h"

namespace longhaul::checkpoint {
namespace {

constexpr std::string_view kManifestBegin = "manifest.a";
constexpr std::string_view kManifestEnd = ".json";
constexpr std::string_view kSupersededBegin = "superseded.a";

/// Returns whether the text is the manifest of another run than `run`.
bool is_strangers(const std::string& text, const std::string& run) {
  try {
    return Manifest::from_json(parse_json(text, "manifest"), "manifest")
        .is_strangers(run);
  } catch (const InputError&) {
    return false;
  }
}

/// Returns the attempt that wrote an object, by its name within a step:
/// "a3_rank_00000.json", "manifest.a3.json".
int attempt_in(std::string_view name) {
  if (const auto attempt = mirror_manifest_attempt(name)) return *attempt;
  for (const std::string_view begin : {std::string_view("a"), kSupersededBegin}) {
    if (!name.starts_with(begin)) continue;
    name.remove_prefix(begin.size());
    return take_number<int>(name).value_or(0);
  }
  return 0;
}

}  // namespace

std::string mirror_name(int64_t step, const std::string& name) {
  return run::step_directory_name(step) + "/" + name;
}

std::string mirror_manifest_name(int attempt) {
  return fmt::format("{}{}{}", kManifestBegin, attempt, kManifestEnd);
}

std::string superseded_manifest_name(int attempt) {
  return fmt::format("{}{}{}", kSupersededBegin, attempt, kManifestEnd);
}

std::optional<int> mirror_manifest_attempt(std::string_view name) {
  if (!name.starts_with(kManifestBegin)) return std::nullopt;
  name.remove_prefix(kManifestBegin.size());
  const auto attempt = take_number<int>(name);
  return name == kManifestEnd ? attempt : std::nullopt;
}

MirrorListing::MirrorListing(MirrorStore& store, std::string run,
                             std::optional<int64_t> step)
    : store_(store), run_(std::move(run)) {
  list(step ? run::step_directory_name(*step) : "");
}

void MirrorListing::list(const std::string& below) {
  for (const MirrorStore::Entry& entry : store_.list(below)) {
    const size_t slash = entry.name.find('/');
    if (slash == std::string::npos) continue;
    const auto of = run::step_of(entry.name.substr(0, slash));
    if (of) steps_[*of][entry.name.substr(slash + 1)] = entry.size;
  }
}

std::vector<int64_t> MirrorListing::steps() const {
  std::vector<int64_t> steps;
  for (const auto& [step, objects] : steps_ | std::views::reverse) steps.push_back(step);
  return steps;
}

const std::map<std::string, uint64_t>& MirrorListing::objects(int64_t step) const {
  static const std::map<std::string, uint64_t> kNone;
  const auto found = steps_.find(step);
  return found == steps_.end() ? kNone : found->second;
}

std::vector<int> MirrorListing::manifests(int64_t step) const {
  std::vector<int> attempts;
  for (const auto& [name, size] : objects(step)) {
    if (const auto attempt = mirror_manifest_attempt(name)) attempts.push_back(*attempt);
  }
  std::ranges::sort(attempts, std::greater<>());
  return attempts;
}

std::optional<MirrorStep> MirrorListing::read(int64_t step,
                                              std::vector<std::string>* skipped) const {
  for (const int attempt : manifests(step)) {
    const std::string name = mirror_name(step, mirror_manifest_name(attempt));
    std::string problem;
    try {
      const auto text = store_.read_text(name);
      if (text) {
        MirrorStep found{step, attempt, {}, *text};
        found.manifest = Manifest::from_json(parse_json(*text, name), name);
        if (found.manifest.step != step || found.manifest.attempt != attempt) {
          problem = fmt::format("it is of step {}, attempt {}", found.manifest.step,
                                found.manifest.attempt);
        } else if (found.manifest.is_strangers(run_)) {
          problem =
              fmt::format("it was saved by run {}, and this is the mirror of run {}",
                          found.manifest.run, run_);
        } else if (const auto missing = missing_in(objects(step), found.manifest)) {
          problem = *missing;
        } else {
          return found;
        }
      } else {
        problem = "it is not there any more";
      }
    } catch (const InputError& error) {
      // A refusal by the store says nothing about the checkpoint.
      if (error.area() == "objects") throw;
      problem = error.message();
    }
    if (skipped != nullptr) {
      skipped->push_back(
          fmt::format("{}/{} passed over: {}", store_.place(), name, problem));
    }
  }
  return std::nullopt;
}

int MirrorListing::highest_attempt() const {
  int highest = 0;
  for (const auto& [step, objects] : steps_) {
    for (const auto& [name, size] : objects) {
      highest = std::max(highest, attempt_in(name));
    }
  }
  return highest;
}

bool MirrorListing::is_whole(int64_t step) {
  if (!whole_.contains(step) && read(step)) whole_.insert(step);
  return whole_.contains(step);
}

void MirrorListing::look_again(int64_t step) {
  whole_.erase(step);
  steps_.erase(step);
  list(run::step_directory_name(step));
}

void MirrorListing::put_manifest(const Manifest& manifest) {
  const std::string text = json_text(manifest.to_json(), 1);
  const std::string name = mirror_manifest_name(manifest.attempt);
  store_.put_text(text, mirror_name(manifest.step, name));
  steps_[manifest.step][name] = text.size();
  whole_.insert(manifest.step);
}

bool MirrorListing::has_strangers(int64_t step) const {
  return std::ranges::any_of(manifests(step), [&](int attempt) {
    const auto text = store_.read_text(mirror_name(step, mirror_manifest_name(attempt)));
    return text && is_strangers(*text, run_);
  });
}

bool MirrorListing::take_away(int64_t step, int attempt) {
  const std::string name = mirror_manifest_name(attempt);
  if (const auto text = store_.read_text(mirror_name(step, name))) {
    if (is_strangers(*text, run_)) return false;
    const std::string kept = superseded_manifest_name(attempt);
    store_.put_text(*text, mirror_name(step, kept));
    steps_[step][kept] = text->size();
  }
  remove(step, name);
  return true;
}

void MirrorListing::remove(int64_t step, const std::string& name) {
  store_.remove(mirror_name(step, name));
  whole_.erase(step);
  steps_[step].erase(name);
  if (steps_[step].empty()) steps_.erase(step);
}

void MirrorListing::remove_step(int64_t step) {
  for (const int attempt : manifests(step)) remove(step, mirror_manifest_name(attempt));
  store_.remove_all(run::step_directory_name(step));
  whole_.erase(step);
  steps_.erase(step);
}

std::optional<std::string> missing_in(const std::map<std::string, uint64_t>& objects,
                                      const Manifest& manifest) {
  for (const Manifest::FileEntry& file : manifest.files()) {
    const auto found = objects.find(file.name);
    if (found == objects.end()) return fmt::format("{} is not there", file.name);
    if (found->second == file.size) continue;
    return fmt::format("{} has {} bytes, and the manifest says {}", file.name,
                       found->second, file.size);
  }
  return std::nullopt;
}

std::optional<run::MirrorOwner> read_mirror_owner(MirrorStore& store) {
  const auto text = store.read_text(run::kCheckpointsOwnerFile);
  if (!text) return std::nullopt;
  const std::string what = store.place() + "/" + run::kCheckpointsOwnerFile;
  try {
    const Json json = parse_json(*text, what);
    const JsonFields fields(json, "mirror", what);
    run::MirrorOwner owner{fields.get<std::string>("run"), fields.get<int>("attempt"),
                           fields.has("name") ? fields.get<std::string>("name") : ""};
    const bool named = !fields.has("name") || run::is_identity(owner.name);
    if (!named || !run::is_identity(owner.run)) {
      fields.fail(
          fmt::format("'{}' is no identity of a run", named ? owner.run : owner.name));
    }
    return owner;
  } catch (const InputError& error) {
    fail_input("mirror", "{}; delete it: the steps of the mirror stay", error.message());
  }
}

}  // namespace longhaul::checkpoint
