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
  int64_t vocab_size = 0;  ///< number that all ids must be below
  int64_t seq_len = 0;     ///< tokens that the rows of the shards must have
  /// Called after each shard.
  std::function<void(int64_t done, int64_t total)> progress;
};

/// Returns a hash of the shards' paths, sizes and modification times, by which a later
/// start recognises the shards.
std::string shards_identity(const std::vector<fs::path>& shards);

/// Writes the examples of all shards, in the order of the shards, to the directory `out`.
/// Packed examples that are there already are kept. The function writes to OUT.building
/// under a lock, discards what a killed start left there, and renames the directory last.
/// Throws InputError for a damaged shard (see ShardReader), and while another process
/// packs there. Also throws InputError when a shard has another seq_len, another
/// tokenizer, or another number of masked positions than the first shard.
ExampleStoreInfo pack_examples(ShardReader& reader, const PackExamplesOptions& options);

}  // namespace longhaul::data
