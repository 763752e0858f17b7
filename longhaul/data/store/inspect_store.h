#pragma once

#include <optional>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"
#include "longhaul/data/sources/token_source.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

struct InspectOptions {
  int64_t seq_len = 0;      ///< with it: how many sequences an epoch has
  int64_t global_size = 0;  ///< with seq_len: how many steps
  /// Read a save_to_disk directory through, to count its tokens; a token store knows.
  bool scan = false;
  /// Its tokenizer, where the caller has just built the store with it; else the one that
  /// lies in the store is loaded, and put to its self-test.
  const tokenizer::Tokenizer* tokenizer = nullptr;
  /// The column of the ids in a save_to_disk directory.
  std::string field = kIdsField;
};

/// What data is, for people and for programs.
struct DataDescription {
  bool complete = true;
  std::string text;
  OrderedJson json;
};

/// What stands at `path`: whether it is complete, counts, lengths, tokenizer, special
/// tokens, sources and a decoded sample. Nothing when `path` is neither a token store nor
/// a save_to_disk directory.
std::optional<DataDescription> describe_data(const fs::path& path,
                                             const InspectOptions& options = {});

/// Re-hashes every file of a token store; InputError names the first damaged file and
/// block. Returns the bytes checked.
uint64_t verify_store(const fs::path& path);

}  // namespace longhaul::data
