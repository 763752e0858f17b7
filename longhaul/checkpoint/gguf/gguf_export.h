#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/checkpoint/hf/hf_forms.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/format/gguf.h"

namespace longhaul::checkpoint {

struct GgufOptions {
  /// The type of matrices; absent: that of most elements of the source, with fp64 as F32.
  std::optional<format::GgufType> type;
  bool tokenizer = true;  ///< whether the tokenizer of the source goes along
  /// Called with the bytes that are done and the bytes of all tensors. May be empty.
  std::function<void(uint64_t, uint64_t)> progress;
};

struct GgufReport {
  uint64_t tensors = 0;
  uint64_t bytes = 0;              ///< of the file
  std::string what;                ///< "llama, Q8_0, tokenizer gpt2 (llama-bpe)"
  std::vector<std::string> notes;  ///< lines for the person
};

/// Writes a GGUF file for llama.cpp, with the keys and tensors that its converter writes
/// (gguf_model.h). Holds parts of tensors of about 16 MiB. The file appears whole or not
/// at all: `out` must be absent, else InputError. Throws InputError for what GGUF cannot
/// say, for weights that are not the model's, and for values that are not finite. Rank 0
/// does the work; its failure is thrown on all ranks. Collective.
GgufReport export_gguf(const SharedSource& source, const fs::path& out,
                       const GgufOptions& options, comm::Communicator& world);

}  // namespace longhaul::checkpoint
