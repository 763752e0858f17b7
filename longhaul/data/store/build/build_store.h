#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/chat/chat_format.h"
#include "longhaul/chat/chat_turns.h"
#include "longhaul/data/input/input_set.h"
#include "longhaul/data/store/special_tokens.h"
#include "longhaul/data/store/store.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

/// How far a build has come in this process.
struct BuildProgress {
  /// The stage under way: "data build", "looking for duplicates".
  std::string_view stage;
  uint64_t bytes = 0;  ///< stored bytes of input read since the start
  /// Stored bytes that this start has to read in this process.
  uint64_t total_bytes = 0;
  int64_t tokens = 0;  ///< tokens made since the start
};

/// How records that are chats become documents.
struct ChatOptions {
  std::shared_ptr<const chat::ChatFormat> format;
  chat::Targets targets = chat::Targets::Assistant;
  /// The day that templates print. Without it: that of the store or of the build at the
  /// same place, else today.
  std::optional<chat::Day> day;
};
/// Returns the name of the targets, such as "assistant".
std::string_view targets_name(chat::Targets targets);

struct BuildOptions {
  InputOptions inputs;
  fs::path out;
  SpecialPolicy special = SpecialPolicy::TokenizerAndEos;
  /// True when the user named the policy for special tokens. Then records that hold token
  /// ids in place of text are refused, since no policy changes such ids.
  bool special_asked = false;
  /// Without a tokenizer the inputs hold ready ids (token ids instead of text), which
  /// must be below this number.
  int64_t vocab_size = 0;
  /// Share of the documents, 0 <= holdout < 1, that goes to a separate store, OUT-val.
  /// The choice depends on a document's text, so that no text is in both stores.
  double holdout = 0.0;
  BadRecords bad_records = BadRecords::Fail;
  int64_t max_bad_records = 1000;  ///< with BadRecords::Drop: above this the build ends
  /// Keeps only the first, in the order of the inputs, of documents with equal text, or
  /// with equal ids and targets.
  bool drop_duplicates = false;
  /// Replaces each newline (U+000A) of a text by a space before the text is cut into
  /// tokens. Duplicates are texts that are equal before this replacement.
  bool newlines_to_spaces = false;
  /// Set where the records are chats, which needs a tokenizer.
  std::optional<ChatOptions> chat;
  bool force = false;    ///< replace token stores that stand at the places
  bool restart = false;  ///< throw away what another build left unfinished at this place
  int threads = 0;       ///< 0: all cores
  /// Memory that the build may use beside the tokenizer; 0:
  /// default_build_memory(threads).
  uint64_t memory_bytes = 0;
  /// Stored bytes of input in a part; 0: 64 MiB, more for inputs above 256 GiB. Another
  /// size gives the same tokens in other shards.
  uint64_t part_bytes = 0;
  int process = 0;    ///< number of this process, from 0
  int processes = 1;  ///< number of processes that build the store together
  double start_seconds =
      600.0;  ///< how long process 0 waits for another process to start
  /// How long a process waits for the next part of a running process.
  double idle_seconds = 3600.0;
  /// Called from threads of the build, one call at a time.
  std::function<void(const BuildProgress&)> progress;
  /// Takes lines for people, such as where the build continues and which processes it
  /// waits for.
  std::function<void(const std::string&)> note;
  /// Called often; true ends the build with a TemporaryError. A later call can continue
  /// the build.
  std::function<bool()> stop;

  /// Returns an option of the command line that was given and that changes only texts and
  /// no token ids, such as "--special-tokens bos"; empty if there is none.
  std::string option_of_texts() const;
};

struct BuildReport {
  fs::path train_path;
  StoreInfo train;
  std::optional<fs::path> validation_path;
  std::optional<StoreInfo> validation;
  /// The first lines of bad_records.jsonl, for people.
  std::vector<std::string> bad_examples;
  /// True when the same store was at its place already and nothing was done.
  bool stood_already = false;
  /// False in a process other than 0, which has finished its own parts only. Process 0
  /// makes the store of all parts.
  bool complete = true;
};

/// Makes a token store of records, or two stores with a holdout. The bytes of the result
/// depend on inputs, tokenizer and options, never on threads, memory or processes.
/// Finished work is kept beside the store, in OUT.building, and the same call continues
/// after an interruption of any kind. Without a tokenizer (null) only records of token
/// ids are read. Throws InputError for bad input, and while another process builds at
/// this place. Also throws InputError when OUT.building holds a build with other inputs,
/// another tokenizer or other options.
BuildReport build_store(const tokenizer::Tokenizer* tokenizer,
                        const BuildOptions& options);

/// Returns the place of a store's held-out documents: "data/wiki" -> "data/wiki-val".
fs::path holdout_path(const fs::path& out);
/// Returns 2 GiB, or 128 MiB for each thread if this product is larger. 0 threads means
/// all cores.
uint64_t default_build_memory(int threads);

}  // namespace longhaul::data
