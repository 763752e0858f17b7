#pragma once

#include <functional>
#include <optional>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"
#include "longhaul/data/sources/token_source.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

struct InspectOptions {
  int64_t seq_len = 0;      ///< given: also say how many sequences an epoch has
  int64_t global_size = 0;  ///< given with seq_len: also say how many steps
  /// Reads a save_to_disk directory through to count its tokens; a token store knows its
  /// number of tokens.
  bool scan = false;
  /// The tokenizer, where the caller has just built the store with it. Otherwise the
  /// tokenizer in the store is loaded and put to its self-test.
  const tokenizer::Tokenizer* tokenizer = nullptr;
  /// The column of the ids in a save_to_disk directory.
  std::string field = kIdsField;
};

/// A description of data, for people and for programs.
struct DataDescription {
  bool complete = true;
  std::string text;
  OrderedJson json;
};

/// Describes the data at `path`: whether they are complete, counts, lengths, tokenizer,
/// special tokens, sources and a decoded sample. Nothing when `path` is neither a token
/// store nor a save_to_disk directory.
std::optional<DataDescription> describe_data(const fs::path& path,
                                             const InspectOptions& options = {});

/// Describes data of one kind by `complete(description)`. An InputError makes it a
/// description of incomplete data. `kind` is for programs, `name` for people.
DataDescription describe_kind(const char* kind, const char* name, const fs::path& path,
                              const std::function<void(DataDescription&)>& complete);

/// Hashes every file of a token store again. InputError names the first damaged file and
/// block. Returns the bytes that were checked.
uint64_t verify_store(const fs::path& path);

}  // namespace longhaul::data
