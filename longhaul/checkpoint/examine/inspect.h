#pragma once

#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"

namespace longhaul::checkpoint {

/// What a path holds, in lines for a person and as JSON.
struct Inspection {
  std::string kind;  ///< "checkpoint", "run", "hf_directory", "safetensors", "tokenizer"
  bool complete =
      true;  ///< whether nothing is missing or damaged, as far as sizes and headers tell
  std::vector<std::string> lines;
  Json json;
};

/// Inspects a checkpoint, a run directory, a directory of checkpoints, a Hugging Face
/// directory, a safetensors file or a tokenizer.json. Reads headers and sizes, no tensor
/// data. Describes incomplete files, with what is missing; throws InputError only for a
/// path that is none of these. A whole tokenizer that this program cannot use gets a
/// note.
Inspection inspect_path(const fs::path& path);

}  // namespace longhaul::checkpoint
