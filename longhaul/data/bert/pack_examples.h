#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhaul/data/bert/example_store.h"
#include "longhaul/data/bert/shard_reader.h"

namespace longhaul::data {

struct PackExamplesOptions {
  std::vector<fs::path> shards;  ///< files, as find_bert_shards gives them
  fs::path out;
  int64_t vocab_size = 0;  ///< all ids must be below it
  int64_t seq_len = 0;     ///< tokens that the rows of the shards must have
  /// Called after each shard.
  std::function<void(int64_t done, int64_t total)> progress;
};

/// Returns a hash of the shards' paths, sizes and times of change, by which a later start
/// recognises them.
std::string shards_identity(const std::vector<fs::path>& shards);

/// Writes the examples of all shards, in their order, to the directory `out`, or leaves
/// packed examples that are there already. The work goes on in OUT.building, behind a
/// lock; what a killed start left there is thrown away, and the directory gets its name
/// last. InputError for a shard that is damaged or does not fit (see ShardReader;
/// seq_len, another number of masked positions than the first shard, another tokenizer),
/// and while another process packs there.
ExampleStoreInfo pack_examples(ShardReader& reader, const PackExamplesOptions& options);

}  // namespace longhaul::data
