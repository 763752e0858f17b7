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
  /// When positive, the description also says how many sequences an epoch has.
  int64_t seq_len = 0;
  /// When positive together with seq_len, the description also says how many steps an
  /// epoch has.
  int64_t global_size = 0;
  /// Reads a save_to_disk directory, or files of token ids, to the end to count their
  /// tokens. A token store records its number of tokens.
  bool scan = false;
  /// The tokenizer that the caller has just built the store with; null: the tokenizer in
  /// the store is loaded and its self-test is run.
  const tokenizer::Tokenizer* tokenizer = nullptr;
  /// Shows this many documents of a token store in full, with their targets.
  int64_t show = 0;
  /// Shows targets in colour; false: between [[ and ]].
  bool colour = false;
  /// The field of a row that holds the ids.
  std::string field = kIdsField;
};

/// A description of data, for people and for programs.
struct DataDescription {
  bool complete = true;
  std::string text;
  OrderedJson json;
};

/// Describes the data at `path`: whether the data are complete, counts, lengths,
/// tokenizer, special tokens, sources and a decoded sample. Returns nothing when `path`
/// is neither a token store nor a save_to_disk directory.
std::optional<DataDescription> describe_data(const fs::path& path,
                                             const InspectOptions& options = {});

/// Describes a file or a directory of token ids in JSON lines, Parquet or Arrow: files,
/// first ids and, with options.scan, rows and tokens. Returns nothing if the names of the
/// files show other data. Throws InputError for files without ids in the field, and for
/// broken rows.
std::optional<DataDescription> describe_ready_ids(const fs::path& path,
                                                  const InspectOptions& options = {});

/// Describes data of one kind: `complete(description)` fills the description. An
/// InputError from `complete` gives a description of incomplete data. `kind` is for
/// programs, `name` for people.
DataDescription describe_kind(const char* kind, const char* name, const fs::path& path,
                              const std::function<void(DataDescription&)>& complete);

/// Hashes every file of a token store again. Throws InputError that names the first
/// damaged file and block. Returns the number of bytes that were checked.
uint64_t verify_store(const fs::path& path);

}  // namespace longhaul::data
