#pragma once

#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"

namespace longhaul::checkpoint {

/// What a path is, in lines for a person and as JSON.
struct Inspection {
  std::string kind;  ///< "checkpoint", "run", "hf_directory", "safetensors", "tokenizer"
  bool complete =
      true;  ///< nothing is missing or damaged as far as sizes and headers tell
  std::vector<std::string> lines;
  Json json;
};

/// Looks at a checkpoint, a run directory, a directory of checkpoints, a Hugging Face
/// directory, a safetensors file or a tokenizer.json. Reads headers and sizes, no tensor
/// data. An incomplete one is described, with what is missing; InputError only for what
/// is none of these. A tokenizer that is whole and not read here is a note.
Inspection inspect_path(const fs::path& path);

}  // namespace longhaul::checkpoint
