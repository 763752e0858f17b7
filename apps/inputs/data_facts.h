#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::data {
class ShardReader;
}

namespace longhaul::apps {

/// The facts about one entry of data.train that the numbers of a run depend on.
struct DataFacts {
  std::string path;          ///< as it was given; a pattern stays one
  std::string kind;          ///< "token store", "BERT examples" ...
  int64_t tokens = 0;        ///< in one pass
  bool exact = true;         ///< false: `tokens` is estimated from a part of the data
  bool packed = false;       ///< training packs the data into a token store first
  int64_t fixed_length = 0;  ///< tokens of every sequence; 0: none is fixed
  bool has_fields = false;   ///< a record's field holds the ids
  std::vector<std::string> held_out;  ///< the stores that were held out of the data
  /// What a document is: "text", "chats" or "pairs", as StoreInfo::kind says it.
  std::string records = "text";
  int64_t longest = 0;  ///< tokens of the longest chat, and at most of the longest pair
  std::string build;  ///< the command that makes the store at `path`; empty: it is there
};

/// An entry of data.train to look at, and what is needed to find the facts about it.
struct DataQuestion {
  std::string path;
  std::string field;                    ///< the field of a record that holds the ids
  std::string model;                    ///< for the command that makes a store of text
  int64_t vocab_size = 0;               ///< every id is below this number
  data::ShardReader* shards = nullptr;  ///< for HDF5 shards
  double seconds = 2.0;                 ///< how long files of ready ids are read at most
};

/// Returns what a store or a run of this data may be called: "book" for
/// texts/book.txt.gz, "corpus" for corpus/ and for 'corpus/*.jsonl'; "mine" if no part of
/// `given` can be a name.
std::string name_of_data(const std::string& given);

/// Finds the facts about anything that data.train takes. For other data it throws
/// InputError that says what was found; for text the error has the command that makes a
/// token store of the text.
DataFacts data_facts(const DataQuestion& question);

}  // namespace longhaul::apps
