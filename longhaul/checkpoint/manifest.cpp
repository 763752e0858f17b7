#include "longhaul/checkpoint/manifest.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/json/json_fields.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_past.h"

namespace longhaul::checkpoint {
namespace {

Json entry_json(const Manifest::FileEntry& entry) {
  return {{"name", entry.name}, {"size", entry.size}, {"hash", entry.hash}};
}

Manifest::FileEntry entry_of(const JsonFields& fields) {
  Manifest::FileEntry entry;
  entry.name = fields.get<std::string>("name");
  entry.size = static_cast<uint64_t>(fields.count("size"));
  entry.hash = fields.get<std::string>("hash");
  join_inside("", entry.name, "checkpoint");
  return entry;
}

// The text has sorted keys and no spaces, so that the same content has the same text.
std::string self_hash(Json json) {
  json.erase("self");
  return hash_hex(json_text(json));
}

}  // namespace

Manifest::FileEntry Manifest::FileEntry::of(std::string name, std::string_view text) {
  BlockHasher hasher;
  hasher.update(std::as_bytes(std::span(text)));
  return {std::move(name), text.size(), combine_hashes(hasher.finish())};
}

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
  if (!run.empty()) json["run"] = run;
  json["self"] = self_hash(json);
  return json;
}

Manifest Manifest::from_json(const Json& json, const std::string& what) {
  const JsonFields fields(json, "checkpoint", what);
  if (fields.get<std::string>("format") != "longhaul-checkpoint") {
    fields.fail("is not a longhaul checkpoint's manifest");
  }
  const auto version = fields.get<uint64_t>("version");
  if (version != kManifestVersion) {
    fields.fail(
        fmt::format("the format version is {}, but this build reads version {}; use the "
                    "release that wrote the checkpoint",
                    version, kManifestVersion));
  }
  const auto entry_in = [](const JsonFields& outer, const char* name) {
    return entry_of(outer.inside(outer.field(name)));
  };
  Manifest manifest;
  manifest.step = fields.count("step");
  manifest.attempt = static_cast<int>(fields.count("attempt"));
  if (fields.has("run")) manifest.run = fields.get<std::string>("run");
  if (!manifest.run.empty() && !run::is_identity(manifest.run)) {
    fields.fail(fmt::format("'{}' is no identity of a run", manifest.run));
  }
  manifest.build = fields.get<std::string>("build");
  manifest.saved_at = fields.get<std::string>("saved_at");
  manifest.layout = fields.field("layout");
  manifest.state = entry_in(fields, "state");
  manifest.hf_dir = fields.get<std::string>("hf_dir");
  join_inside("", manifest.hf_dir, "checkpoint");
  for (const Json& item : fields.list("ranks")) {
    const JsonFields rank = fields.inside(item);
    manifest.ranks.push_back({entry_in(rank, "data"), entry_in(rank, "sidecar")});
  }
  for (const Json& file : fields.list("hf")) {
    manifest.hf.push_back(entry_of(fields.inside(file)));
  }
  const auto self = fields.get<std::string>("self");
  const std::string found = self_hash(json);
  if (found != self) {
    fields.fail(
        fmt::format("its content has hash {}, but hash {} was written; the file has "
                    "changed since; use another checkpoint",
                    found, self));
  }
  return manifest;
}

Manifest Manifest::read(const fs::path& step_dir) {
  const fs::path path = step_dir / run::kManifestFile;
  if (!is_seen(path)) {
    fail_input("checkpoint",
               "{}: there is no {}; the directory is not a checkpoint, or its writing "
               "never ended",
               step_dir.string(), run::kManifestFile);
  }
  return from_json(read_json(path), path.string());
}

bool Manifest::is_strangers(const std::string& of) const {
  return !run.empty() && !of.empty() && run != of;
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

void check_file_size(const fs::path& step_dir, const Manifest::FileEntry& file) {
  const fs::path path = join_inside(step_dir, file.name, "checkpoint");
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error) {
    fail_input("checkpoint", "{}: {}, although the manifest names this file",
               path.string(), error.message());
  }
  if (size != file.size) {
    fail_input("checkpoint",
               "{}: the file has {} bytes, but the manifest says {}; the file is {}",
               path.string(), size, file.size,
               size < file.size ? "truncated" : "changed");
  }
}

}  // namespace longhaul::checkpoint
