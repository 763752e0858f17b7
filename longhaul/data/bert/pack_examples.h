#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhaul/data/bert/example_store.h"
#include "longhaul/data/bert/shard_reader.h"

namespace longhaul::data {

struct PackExamplesOptions {
  std::vector<fs::path> shards;  ///< files: find_bert_shards
  fs::path out;
  int64_t vocab_size = 0;  ///< ids are below it
  int64_t seq_len = 0;     ///< what the shards must have
  /// After each shard.
  std::function<void(int64_t done, int64_t total)> progress;
};

/// A hash of the shards' paths, sizes and times of change: of what a start finds again.
std::string shards_identity(const std::vector<fs::path>& shards);

/// Writes the examples of all shards, in their order, to the directory `out`, or leaves
/// what is there already. Work goes on beside it in OUT.building, behind a lock; what an
/// earlier, killed start left there is thrown away, and the directory gets its name last.
/// InputError for a shard that is damaged or does not fit (ShardReader, seq_len, another
/// number of masked positions than the first, another tokenizer), and while another
/// process packs there.
ExampleStoreInfo pack_examples(ShardReader& reader, const PackExamplesOptions& options);

}  // namespace longhaul::data
