#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/format/gguf.h"

namespace longhaul::checkpoint {

/// A tokenizer in the words of GGUF.
struct GgufTokenizer {
  format::GgufValues values;       ///< the keys that begin with "tokenizer."
  std::vector<std::string> notes;  ///< how llama.cpp will differ, for the person
};

/// Describes the tokenizer in a directory for llama.cpp. A byte-level BPE of
/// tokenizer.json becomes the kind "gpt2", with the pre-tokenizer of llama.cpp that has
/// its split pattern and reads its merges alike. A BPE with byte fallback becomes the
/// kind "llama", of which tokenizer.model has the scores. Ids below `vocab_size` without
/// a token are unused tokens. Throws InputError for a part that llama.cpp lacks.
GgufTokenizer describe_gguf_tokenizer(const fs::path& dir, int64_t vocab_size);

/// Returns the keys of a file without a tokenizer.
format::GgufValues no_gguf_tokenizer();

}  // namespace longhaul::checkpoint
