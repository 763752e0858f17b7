#include "longhaul/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/checkpoint/json_fields.h"

namespace longhaul::checkpoint {
namespace {

Json entry_json(const Manifest::FileEntry& entry) {
  return {{"name", entry.name}, {"size", entry.size}, {"hash", entry.hash}};
}

Manifest::FileEntry entry_of(const Json& json, const std::string& what) {
  Manifest::FileEntry entry;
  entry.name = string_field(json, "name", what);
  entry.size = unsigned_field(json, "size", what);
  entry.hash = string_field(json, "hash", what);
  join_inside("", entry.name, "checkpoint");
  return entry;
}

// Keys are sorted and nothing stands between them: the same text for the same content.
std::string self_hash(Json json) {
  json.erase("self");
  return hash_hex(json.dump());
}

}  // namespace

Json Manifest::to_json() const {
  Json ranks_json = Json::array();
  for (const RankEntry& rank : ranks) {
    ranks_json.push_back(
        {{"data", entry_json(rank.data)}, {"sidecar", entry_json(rank.sidecar)}});
  }
  Json hf_json = Json::array();
  for (const FileEntry& file : hf) hf_json.push_back(entry_json(file));
  Json json = {{"format", "longhaul-checkpoint"},
               {"version", kManifestVersion},
               {"step", step},
               {"attempt", attempt},
               {"build", build},
               {"saved_at", saved_at},
               {"layout", layout},
               {"state", entry_json(state)},
               {"hf_dir", hf_dir},
               {"ranks", std::move(ranks_json)},
               {"hf", std::move(hf_json)}};
  json["self"] = self_hash(json);
  return json;
}

Manifest Manifest::from_json(const Json& json, const std::string& what) {
  if (string_field(json, "format", what) != "longhaul-checkpoint") {
    throw InputError("checkpoint", what + ": is not a longhaul checkpoint's manifest");
  }
  const uint64_t version = unsigned_field(json, "version", what);
  if (version != kManifestVersion) {
    throw InputError(
        "checkpoint",
        fmt::format("{}: format version {}, this build reads version {}; use "
                    "the release that wrote it",
                    what, version, kManifestVersion));
  }
  Manifest manifest;
  manifest.step = static_cast<int64_t>(unsigned_field(json, "step", what));
  manifest.attempt = static_cast<int>(unsigned_field(json, "attempt", what));
  manifest.build = string_field(json, "build", what);
  manifest.saved_at = string_field(json, "saved_at", what);
  manifest.layout = field(json, "layout", what);
  manifest.state = entry_of(field(json, "state", what), what);
  manifest.hf_dir = string_field(json, "hf_dir", what);
  join_inside("", manifest.hf_dir, "checkpoint");
  for (const Json& rank : array_field(json, "ranks", what)) {
    manifest.ranks.push_back({entry_of(field(rank, "data", what), what),
                              entry_of(field(rank, "sidecar", what), what)});
  }
  for (const Json& file : array_field(json, "hf", what)) {
    manifest.hf.push_back(entry_of(file, what));
  }
  const std::string self = string_field(json, "self", what);
  const std::string found = self_hash(json);
  if (found != self) {
    throw InputError("checkpoint",
                     fmt::format("{}: its content has hash {}, written was {}; the file "
                                 "has changed since, use another checkpoint",
                                 what, found, self));
  }
  return manifest;
}

Manifest Manifest::read(const fs::path& step_dir) {
  const fs::path path = step_dir / kManifestName;
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw InputError(
        "checkpoint",
        fmt::format("{}: no {}; it is not a checkpoint, or its writing never "
                    "ended",
                    step_dir.string(), kManifestName));
  }
  return from_json(read_json(path), path.string());
}

std::vector<Manifest::FileEntry> Manifest::files() const {
  std::vector<FileEntry> all;
  for (const RankEntry& rank : ranks) {
    all.push_back(rank.data);
    all.push_back(rank.sidecar);
  }
  all.push_back(state);
  all.insert(all.end(), hf.begin(), hf.end());
  return all;
}

uint64_t Manifest::total_bytes() const {
  uint64_t total = 0;
  for (const FileEntry& file : files()) total += file.size;
  return total;
}

void check_file_sizes(const fs::path& step_dir, const Manifest& manifest) {
  for (const Manifest::FileEntry& file : manifest.files()) {
    const fs::path path = join_inside(step_dir, file.name, "checkpoint");
    std::error_code error;
    const uint64_t size = fs::file_size(path, error);
    if (error) {
      throw InputError("checkpoint", fmt::format("{}: {}, though the manifest names it",
                                                 path.string(), error.message()));
    }
    if (size != file.size) {
      throw InputError(
          "checkpoint",
          fmt::format("{}: {} bytes, the manifest says {}; the file is {}", path.string(),
                      size, file.size, size < file.size ? "truncated" : "changed"));
    }
  }
}

std::string file_hash(const fs::path& path) {
  const File file = File::open_read(path);
  const uint64_t size = file.size();
  BlockHasher hasher;
  std::vector<std::byte> buffer(8 * kHashBlockBytes);
  for (uint64_t at = 0; at < size; at += buffer.size()) {
    const std::span part =
        std::span(buffer).first(std::min<uint64_t>(buffer.size(), size - at));
    file.read_at(at, part);
    hasher.update(part);
  }
  return combine_hashes(hasher.finish());
}

}  // namespace longhaul::checkpoint
