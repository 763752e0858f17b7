#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/data/bert/shard_reader.h"

namespace longhaul::data {

/// Examples for a model with masked-token and next-sentence heads, row-major
/// [rows, seq_len]: the fields of transformers' BertForPreTraining.
struct BertBatch {
  int64_t rows = 0;
  int64_t seq_len = 0;
  std::vector<int32_t> tokens;
  std::vector<int32_t> segments;       ///< 0 first text, 1 second (token_type_ids)
  std::vector<int32_t> mask;           ///< 1 token, 0 padding (attention_mask)
  std::vector<int32_t> labels;         ///< the masked-out token's id, else kIgnore
  std::vector<int32_t> next_sentence;  ///< [rows]: 0 the texts belong together, 1 not
  int64_t num_targets = 0;             ///< labels that are not kIgnore
  /// Hash over all of it: what proves which examples a step saw.
  int64_t content_hash = 0;
};

/// Where a group stands: the row of its epoch's order that comes next.
struct BertPosition {
  int64_t epoch = 0;
  int64_t file = 0;  ///< number of the group's file in this epoch
  int64_t row = 0;   ///< rows of this file that were handed out
  bool operator==(const BertPosition&) const = default;

  Json to_json() const;
  /// InputError names the field when it is not a position.
  static BertPosition from_json(const Json& json);
};

struct BertLoaderOptions {
  int64_t batch_size = 0;
  int64_t group = 0;  ///< place among the data-parallel groups
  int64_t num_groups = 1;
  int64_t vocab_size = 0;
  int64_t seq_len = 0;          ///< what every shard must have
  int64_t max_predictions = 0;  ///< labels taken of a row; 0: all that the shard has
  uint64_t seed = 0;            ///< of the order of rows inside a file
  bool shuffle_rows = true;
  /// An epoch ends one file number earlier, as the source system's loop does: it loads
  /// the last number and never trains on it.
  bool source_epochs = false;
  bool prefetch = true;  ///< load the next shard on a thread while this one is used
};

/// Hands out one group's batches, shard after shard in ShardOrder, rows of a shard in a
/// keyed random order; rows at the end of a shard that make no whole batch are left out
/// and counted. Starting anywhere takes the load of one shard. One thread at a time.
class BertLoader {
 public:
  /// `files` are sorted (find_bert_shards). ConfigError for sizes that make no sense;
  /// InputError when a position is beyond its epoch (next: beyond its file).
  BertLoader(std::shared_ptr<ShardReader> reader, std::vector<fs::path> files,
             const BertLoaderOptions& options, const BertPosition& start = {});
  ~BertLoader();
  BertLoader(BertLoader&&) noexcept;

  /// The next batch, the caller's until the next call. InputError for a shard that is
  /// damaged or has another length, and when a whole epoch has no batch.
  BertBatch& next();
  /// What a checkpoint stores: what comes after the last batch handed out.
  const BertPosition& position() const;
  /// The shard of the last batch.
  const fs::path& file() const;
  /// Of the shards' names and sizes: a position belongs to equal shards.
  std::string fingerprint() const;
  /// File numbers in an epoch.
  int64_t files_per_epoch() const;
  /// Rows passed over since the start because they made no whole batch.
  int64_t rows_left_out() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Where row `index` of an epoch's pass over a file lies in the file: the order of rows,
/// keyed by seed, epoch and the file's number over all groups.
class RowOrder {
 public:
  RowOrder(int64_t rows, uint64_t seed, int64_t epoch, int64_t place, bool shuffle);
  int64_t operator()(int64_t index) const;

 private:
  int64_t rows_;
  uint64_t key_;
  bool shuffle_;
};

/// Fills row `to` of a batch from row `from` of a shard: labels are kIgnore but at the
/// listed positions, up to the first position 0 and at most `max_predictions`.
void copy_example(const BertShard& shard, int64_t from, int64_t max_predictions,
                  BertBatch& batch, int64_t to);

}  // namespace longhaul::data
