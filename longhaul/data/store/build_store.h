#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/data/input/documents.h"
#include "longhaul/data/store/special_tokens.h"
#include "longhaul/data/store/store.h"
#include "longhaul/data/tokenizer/tokenizer.h"

namespace longhaul::data {

struct BuildOptions {
  std::vector<fs::path> files;
  fs::path out;
  std::string field = "text";
  SpecialPolicy special = SpecialPolicy::TokenizerAndEos;
  /// Share of the documents, 0 <= holdout < 1, that goes to a store of its own, OUT-val.
  /// A document's text decides, so the same text never stands on both sides.
  double holdout = 0.0;
  BadRecords bad_records = BadRecords::Fail;
  bool force = false;  ///< replace token stores that stand at the places
  int threads = 0;     ///< 0: all cores
  int64_t tokens_per_shard = int64_t{1} << 29;
  /// Called now and then with stored bytes read, stored bytes of all files, tokens so
  /// far.
  std::function<void(uint64_t, uint64_t, int64_t)> progress;
};

struct BuildReport {
  fs::path train_path;
  StoreInfo train;
  std::optional<fs::path> validation_path;
  std::optional<StoreInfo> validation;
  DroppedRecords dropped;
};

/// Text to a token store (two with a holdout). The result depends on texts, tokenizer and
/// options, never on the number of threads. InputError on bad input; then nothing is
/// left.
BuildReport build_store(const Tokenizer& tokenizer, const BuildOptions& options);

/// Where the held-out documents of a store go: "data/wiki" -> "data/wiki-val".
fs::path holdout_path(const fs::path& out);

}  // namespace longhaul::data
