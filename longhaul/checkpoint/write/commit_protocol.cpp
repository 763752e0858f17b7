#include "longhaul/checkpoint/write/commit_protocol.h"

#include <fmt/format.h>

#include <optional>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/numbers.h"
#include "longhaul/base/process.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/manifest.h"
#include "longhaul/checkpoint/rank_file.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_lock.h"

namespace longhaul::checkpoint {
namespace {

bool dir_has_prefix(const fs::path& dir, const std::string& prefix) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.path().filename().string().starts_with(prefix)) return true;
  }
  return false;
}

// Returns a prefix for this save's files that no file of the directory has.
std::string free_prefix(const fs::path& dir, int attempt) {
  std::string prefix = fmt::format("a{}_", attempt);
  for (int n = 2; dir_has_prefix(dir, prefix); ++n)
    prefix = fmt::format("a{}r{}_", attempt, n);
  return prefix;
}

// Writes a small file. The manifest entry is of the text that was meant, not of what a
// damaged disk gives back.
Manifest::FileEntry write_entry(const fs::path& dir, const std::string& name,
                                std::string_view text) {
  write_text_durable(dir / name, text);
  return Manifest::FileEntry::of(name, text);
}

std::vector<Manifest::FileEntry> write_hf(const fs::path& dir, const std::string& hf_dir,
                                          const std::vector<CarriedFile>& files) {
  std::vector<Manifest::FileEntry> entries;
  std::set<fs::path> dirs = {dir / hf_dir};
  fs::create_directories(dir / hf_dir);
  for (const CarriedFile& file : files) {
    const std::string name = hf_dir + "/" + file.name;
    const fs::path path = join_inside(dir / hf_dir, file.name, "checkpoint");
    fs::create_directories(path.parent_path());
    for (fs::path made = path.parent_path(); made != dir; made = made.parent_path()) {
      dirs.insert(made);
    }
    if (file.source.empty()) {
      entries.push_back(write_entry(dir, name, file.text));
    } else {
      entries.push_back(write_entry(dir, name, MappedFile(file.source).text()));
    }
  }
  for (const fs::path& made : dirs) sync_directory(made);
  return entries;
}

// Returns the attempt in a file's name: 12 for "a12r2_state.json".
std::optional<int> attempt_of(std::string_view name) {
  if (!name.starts_with('a')) return std::nullopt;
  name.remove_prefix(1);
  const auto attempt = take_number<int>(name);
  return name.starts_with('_') || name.starts_with('r') ? attempt : std::nullopt;
}

// Removes what this attempt and earlier ones have left in a step directory, except the
// named files. A later attempt's files stay: this attempt may have been cut off.
void remove_leftovers(const fs::path& dir, int attempt,
                      const std::set<std::string>& named) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (named.contains(name) || attempt_of(name).value_or(attempt + 1) > attempt) {
      continue;
    }
    fs::remove_all(entry.path());
  }
}

std::set<std::string> names_of(const Manifest& manifest) {
  std::set<std::string> names = {manifest.hf_dir};
  for (const Manifest::FileEntry& file : manifest.files()) names.insert(file.name);
  return names;
}

// Returns the manifest in a step directory. A directory whose manifest cannot be read is
// set aside, for a person to look at.
std::optional<Manifest> standing_manifest(const fs::path& dir) {
  if (!fs::exists(dir / run::kManifestFile)) return std::nullopt;
  try {
    return Manifest::read(dir);
  } catch (const InputError&) {
    set_aside(dir, "damaged");
    make_directories_durable(dir);
    return std::nullopt;
  }
}

bool manifest_is_of(const SaveTarget& target) {
  return fs::exists(target.dir / run::kManifestFile) &&
         Manifest::read(target.dir).hf_dir == target.prefix + "hf";
}

std::string sidecar_name(const SaveTarget& target, int rank) {
  return rank_file_stem(target.prefix, rank) + ".json";
}

Manifest::RankEntry rank_entry(const SaveTarget& target, int rank) {
  const std::string name = sidecar_name(target, rank);
  const std::string text = read_text(target.dir / name);
  const std::string data = rank_file_stem(target.prefix, rank) + ".safetensors";
  const uint64_t size = fs::file_size(target.dir / data);
  const Sidecar sidecar = Sidecar::parse(text, size, (target.dir / name).string());
  return {{data, size, hash_hex(sidecar.block_hashes)},
          Manifest::FileEntry::of(name, text)};
}

// Publishes the manifest: the one moment that makes a checkpoint. A step without a
// manifest gets one only if it still has none, so that an attempt which was cut off
// between its check of the lock and this line cannot replace its successor's manifest.
void publish(const SaveTarget& target, const CommitContent& content,
             const std::string& text) {
  const fs::path manifest = target.dir / run::kManifestFile;
  const fs::path temporary = target.dir / (target.prefix + "manifest.tmp");
  write_text_durable(temporary, text);
  if (content.lock != nullptr) content.lock->check();
  if (target.replaces) {
    fs::rename(temporary, manifest);
  } else if (!rename_to_new(temporary, manifest)) {
    throw Error(ErrorKind::Internal, "checkpoint",
                fmt::format("{}: another attempt has saved this step meanwhile; its "
                            "checkpoint was not changed",
                            target.dir.string()));
  }
  sync_directory(target.dir);
}

}  // namespace

SaveTarget prepare_step(const fs::path& checkpoints, int64_t step, int attempt) {
  SaveTarget target;
  target.step = step;
  target.dir = checkpoints / run::step_directory_name(step);
  make_directories_durable(checkpoints);
  make_directories_durable(target.dir);
  const std::optional<Manifest> standing = standing_manifest(target.dir);
  target.replaces = standing.has_value();
  // A save that an earlier attempt has not committed by now must never be committed. Its
  // temporary manifest, which may be about to be renamed, is removed with the other
  // files.
  remove_leftovers(target.dir, attempt,
                   standing ? names_of(*standing) : std::set<std::string>());
  target.prefix = free_prefix(target.dir, attempt);
  return target;
}

bool write_rank(const SaveTarget& target, int rank,
                const std::vector<StateTensor>& tensors,
                const std::function<bool()>& cancelled) {
  const std::string stem = rank_file_stem(target.prefix, rank);
  const std::string sidecar = write_rank_data(target.dir, stem, rank, tensors, cancelled);
  if (sidecar.empty()) return false;
  const fs::path temporary = target.dir / (stem + ".json.tmp");
  write_text_durable(temporary, sidecar);
  fs::rename(temporary, target.dir / sidecar_name(target, rank));
  return true;
}

bool rank_is_written(const SaveTarget& target, int rank) {
  return is_seen(target.dir / sidecar_name(target, rank));
}

uint64_t commit_step(const SaveTarget& target, const CommitContent& content) {
  if (content.lock != nullptr) content.lock->check();
  Manifest manifest;
  manifest.step = target.step;
  manifest.attempt = content.attempt;
  manifest.run = content.run;
  manifest.build = content.build;
  manifest.saved_at = utc_now();
  manifest.layout = content.layout;
  manifest.hf_dir = target.prefix + "hf";
  for (int r = 0; r < content.ranks; ++r) manifest.ranks.push_back(rank_entry(target, r));
  manifest.hf = write_hf(target.dir, manifest.hf_dir, content.hf);
  manifest.state =
      write_entry(target.dir, target.prefix + "state.json", json_text(content.state));
  sync_directory(target.dir);
  publish(target, content, json_text(manifest.to_json(), 1));
  if (target.replaces) remove_leftovers(target.dir, content.attempt, names_of(manifest));
  return manifest.total_bytes();
}

void read_back(const SaveTarget& target, int rank,
               const std::function<bool()>& cancelled) {
  const fs::path path =
      target.dir / (rank_file_stem(target.prefix, rank) + ".safetensors");
  const fs::path sidecar_path = target.dir / sidecar_name(target, rank);
  const File file = File::open_read(path);
  file.drop_cache();
  const uint64_t size = file.size();
  const Sidecar sidecar =
      Sidecar::parse(read_text(sidecar_path), size, sidecar_path.string());
  verify_blocks(file, size, sidecar.block_hashes, cancelled);
}

void withdraw_step(const SaveTarget& target) {
  if (manifest_is_of(target)) withdraw_checkpoint(target.dir);
}

void abandon_step(const SaveTarget& target) noexcept {
  try {
    // The manifest may have been renamed into place before the sync failed. Then the
    // checkpoint is whole, though perhaps not durable.
    if (manifest_is_of(target)) return;
    for (const fs::path& path : paths_in(target.dir)) {
      if (path.filename().string().starts_with(target.prefix)) try_remove_all(path);
    }
  } catch (const std::exception&) {
    return;  // nothing tells whose manifest stands there, or what else does
  }
  try_remove(target.dir);  // stays when it is not empty
}

}  // namespace longhaul::checkpoint
