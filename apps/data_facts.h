#pragma once

#include <cstdint>
#include <string>

#include "longhaul/base/file.h"

namespace longhaul::data {
class ShardReader;
}

namespace longhaul::apps {

/// What one entry of data.train is, so far as the numbers of a run depend on it.
struct DataFacts {
  std::string path;          ///< as it was given; a pattern stays one
  std::string kind;          ///< "token store", "BERT examples" ...
  int64_t tokens = 0;        ///< of one pass
  bool exact = true;         ///< false: from a part of the data
  bool packed = false;       ///< training packs it into a token store first
  int64_t fixed_length = 0;  ///< of each sequence; 0: any
  std::string held_out;      ///< the store that was held out of it; empty: none
};

struct DataQuestion {
  std::string path;
  std::string field;                    ///< where records hold the ids
  std::string model;                    ///< for the command that makes a store of text
  int64_t vocab_size = 0;               ///< ids are below it
  data::ShardReader* shards = nullptr;  ///< for HDF5 shards
  double seconds = 2.0;                 ///< files of ready ids are read so long at most
};

/// Looks at whatever data.train takes. InputError says what was found and, of text, the
/// command that makes a token store of it.
DataFacts data_facts(const DataQuestion& question);

}  // namespace longhaul::apps
