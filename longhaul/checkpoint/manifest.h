#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"

namespace longhaul::checkpoint {

// A checkpoint is a directory step_00000005/ with
//   a1_rank_00000.safetensors ...  each rank's boxes (attempt 1, rank 0)
//   a1_rank_00000.json ...         its boxes and the xxh3-128 of each 1 MiB block
//   state.json, hf/                the trainer's state; config, tokenizer, licence files
//   manifest.json                  last of all: size and hash of every file above
// A directory without manifest.json is not a checkpoint. When a step is saved again, the
// new files stand beside the old ones under names of their own until the manifest has
// been replaced. The manifest says which names count. So one of the two checkpoints is
// whole at every moment.

inline constexpr int kManifestVersion = 1;
/// The content of manifest.json.
struct Manifest {
  struct FileEntry {
    std::string name;  ///< path relative to the step directory
    uint64_t size = 0;
    std::string hash;  ///< combine_hashes of its blocks
    /// Returns the entry of a file with this text.
    static FileEntry of(std::string name, std::string_view text);
  };
  struct RankEntry {
    FileEntry data;     ///< the .safetensors file
    FileEntry sidecar;  ///< the .json file
  };
  int64_t step = 0;
  int attempt = 0;
  /// The identity of the run that saved the checkpoint (run/run_past.h). It is empty
  /// where no run saved the checkpoint, or an old release, which wrote no identity.
  std::string run;
  std::string build;
  std::string saved_at;  ///< UTC, ISO 8601
  Json layout;
  std::string hf_dir;  ///< "a1_hf"
  FileEntry state;
  std::vector<RankEntry> ranks;
  std::vector<FileEntry> hf;  ///< names include hf_dir

  /// Returns the JSON, with the hash of all other fields as "self", so that a change of
  /// any field is found.
  Json to_json() const;
  /// Throws InputError that names `what` (the path) and the field, or says that "self" is
  /// wrong.
  static Manifest from_json(const Json& json, const std::string& what);
  static Manifest read(const fs::path& step_dir);
  /// Returns whether another run than `of` saved this checkpoint. Returns false where
  /// this checkpoint names no run, or `of` is empty, since then it may be the same run.
  bool is_strangers(const std::string& of) const;
  /// Returns the bytes of all files: the ranks' files, state and hf.
  uint64_t total_bytes() const;
  std::vector<FileEntry> files() const;
};

/// Throws InputError when a file is absent or has another size than the manifest says.
void check_file_size(const fs::path& step_dir, const Manifest::FileEntry& file);

}  // namespace longhaul::checkpoint
