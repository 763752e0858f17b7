#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/data/input/input_set.h"
#include "longhaul/data/store/special_tokens.h"
#include "longhaul/data/store/store.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

/// How far a build has come in this process.
struct BuildProgress {
  /// What is under way: "data build", "looking for duplicates", "waiting for others".
  std::string_view stage;
  uint64_t bytes = 0;        ///< stored bytes of input read since the start
  uint64_t total_bytes = 0;  ///< and of all that this process had to read then
  int64_t tokens = 0;        ///< made since the start
};

struct BuildOptions {
  InputOptions inputs;
  fs::path out;
  SpecialPolicy special = SpecialPolicy::TokenizerAndEos;
  /// The policy was asked for: ready ids, which none changes, are refused.
  bool special_asked = false;
  /// Without a tokenizer: the inputs hold ready ids, all below this.
  int64_t vocab_size = 0;
  /// Share of the documents, 0 <= holdout < 1, that goes to a store of its own, OUT-val.
  /// A document's text decides, so the same text never stands on both sides.
  double holdout = 0.0;
  BadRecords bad_records = BadRecords::Fail;
  int64_t max_bad_records = 1000;  ///< with BadRecords::Drop: more end the build
  /// Of documents with equal text (or ids and targets) the first in input order stays.
  bool drop_duplicates = false;
  bool force = false;    ///< replace token stores that stand at the places
  bool restart = false;  ///< throw away what another build left unfinished at this place
  int threads = 0;       ///< 0: all cores
  /// What may be held beside the tokenizer; 0: default_build_memory(threads).
  uint64_t memory_bytes = 0;
  /// Stored bytes of input in a part; 0: 64 MiB, more for inputs above 256 GiB. Another
  /// size makes another store (the same tokens in other shards).
  uint64_t part_bytes = 0;
  /// Which of how many processes that build this store together.
  int process = 0;
  int processes = 1;
  double start_seconds = 600.0;  ///< how long process 0 waits for another one to start
  double idle_seconds = 3600.0;  ///< and, while they live, for the next part's end
  /// Called from threads of the build, one call at a time.
  std::function<void(const BuildProgress&)> progress;
  /// Lines for people: what a build goes on from, whom it waits for.
  std::function<void(const std::string&)> note;
  /// Asked often: true ends the build with a TemporaryError; it can go on later.
  std::function<bool()> stop;
};

struct BuildReport {
  fs::path train_path;
  StoreInfo train;
  std::optional<fs::path> validation_path;
  std::optional<StoreInfo> validation;
  /// The first few lines of bad_records.jsonl, for people.
  std::vector<std::string> bad_examples;
  /// This very store stood there already; nothing was done.
  bool stood_already = false;
  /// False in a process other than 0: its parts are done, process 0 makes the store.
  bool complete = true;
};

/// Records to a token store (two with a holdout). The bytes of the result depend on
/// inputs, tokenizer and options, never on threads, memory or processes. What is done is
/// kept beside the store, in OUT.building: the same call goes on after an end of any
/// kind. Without a tokenizer (null) only ready ids are read. InputError on bad input, on
/// a build at the same place that lives, and when what was left there belongs to other
/// inputs, another tokenizer or other options.
BuildReport build_store(const tokenizer::Tokenizer* tokenizer,
                        const BuildOptions& options);

/// Where the held-out documents of a store go: "data/wiki" -> "data/wiki-val".
fs::path holdout_path(const fs::path& out);
/// Where an unfinished store lies: "data/wiki" -> "data/wiki.building".
fs::path building_path(const fs::path& out);
/// 2 GiB, or 128 MiB for each thread where that is more. threads 0: all cores.
uint64_t default_build_memory(int threads);

}  // namespace longhaul::data
