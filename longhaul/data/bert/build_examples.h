#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "longhaul/data/bert/bert_record.h"
#include "longhaul/data/bert/read_documents.h"

namespace longhaul::data {

struct BuildExamplesOptions {
  InputOptions inputs;
  fs::path out;
  ExampleOptions examples;
  int64_t duplicates = 5;  ///< passes over the documents, each masked and paired anew
  /// 0: shards of about 64 MiB in memory, 16 at least where there is enough text.
  int64_t shards = 0;
  SentenceRule sentences = SentenceRule::Lines;
  BadRecords bad_records = BadRecords::Fail;
  int64_t max_bad_records = 1000;  ///< with BadRecords::Drop: more end the build
  int threads = 0;                 ///< 0: all cores
  /// For the shards in the making; fewer threads work where that many would need more.
  uint64_t memory_bytes = uint64_t{4} << 30;
  bool force = false;    ///< replace examples that stand at `out`
  bool restart = false;  ///< throw away what an earlier, other build left unfinished
  /// Stage ("reading", "examples"), done and total: stored bytes, then shards.
  std::function<void(const std::string&, int64_t, int64_t)> progress;
  /// Lines for people: what is passed over.
  std::function<void(const std::string&)> note;
};

/// Text to HDF5 shards of BERT examples. Each document of each pass is work of its own
/// whose random numbers depend on seed, pass and document only; a keyed permutation deals
/// them to the shards. So the shards' bytes depend on inputs, tokenizer and options,
/// never on threads. Work goes on beside `out` in OUT.building: tokens of all documents
/// first (2 or 4 bytes each), then shard after shard; a build that was killed goes on
/// there when it is started again, after the shards that are complete, and the directory
/// gets its name last. InputError for bad input, for an `out` that exists, for an
/// unfinished build with other inputs or options, and while another process builds there.
BertRecord build_examples(const tokenizer::Tokenizer& tokenizer,
                          const BuildExamplesOptions& options);

}  // namespace longhaul::data
