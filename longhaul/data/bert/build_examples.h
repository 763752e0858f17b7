#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "longhaul/data/bert/bert_record.h"
#include "longhaul/data/bert/read_documents.h"

namespace longhaul::data {

struct BuildExamplesOptions : ReadDocumentsOptions {
  InputOptions inputs;
  fs::path out;
  ExampleOptions examples;
  int64_t duplicates = 5;  ///< passes over the documents, each masked and paired anew
  /// Number of shards; 0: shards of about 64 MiB in memory, and at least 16 shards if
  /// there is enough text.
  int64_t shards = 0;
  /// Memory for the shards that threads are making. Fewer threads work if all threads
  /// would need more memory.
  uint64_t memory_bytes = uint64_t{4} << 30;
  bool force = false;    ///< replace examples that stand at `out`
  bool restart = false;  ///< throw away what another build left unfinished
  /// Called with the stage ("reading", "examples"), the amount done and the total. The
  /// unit is stored bytes while reading, then shards.
  std::function<void(const std::string&, int64_t, int64_t)> progress;
  /// Takes lines for people, such as which files are passed over.
  std::function<void(const std::string&)> note;
};

/// Makes HDF5 shards of BERT examples from text. The random numbers of a document in a
/// pass depend on seed, pass and document only, and a keyed permutation deals the
/// documents to the shards. The bytes of the shards therefore depend on inputs, tokenizer
/// and options, never on threads. The build writes to OUT.building: first the tokens of
/// all documents (2 or 4 bytes each), then one shard after another. A killed build that
/// is started again continues after its complete shards. The directory is renamed to OUT
/// last. Throws InputError for bad input, for an `out` that exists, for an unfinished
/// build with other inputs or options, and while another process builds there.
BertRecord build_examples(const tokenizer::Tokenizer& tokenizer,
                          const BuildExamplesOptions& options);

}  // namespace longhaul::data
