#pragma once

#include <memory>
#include <string>
#include <vector>

#include "longhaul/comm/communicator.h"
#include "longhaul/config/run_config.h"
#include "longhaul/data/bert/shard_reader.h"
#include "longhaul/data/order/loader.h"
#include "longhaul/data/sources/referenced_source.h"
#include "longhaul/families/model_config.h"
#include "longhaul/infer/task_set.h"
#include "longhaul/objects/access.h"
#include "longhaul/system/log.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::train {

/// A named source of validation data.
struct ValidationSet {
  std::string name;
  std::shared_ptr<const data::TokenSource> source;
};

/// A source of pairs that needs the reference's sums of log-probabilities.
struct PairData {
  std::shared_ptr<data::ReferencedSource> source;
  int64_t sequences = 0;  ///< only this many of the first sequences are read; 0: all
};

/// The data of a run.
struct RunData {
  std::vector<data::WeightedSource> train;
  int64_t train_sequences = 0;  ///< sequences of all sources, each counted once
  bool fetches_shards = false;  ///< shards of `train` are fetched during training
  std::vector<ValidationSet> validation;
  std::vector<infer::TaskSet> tasks;  ///< in the order of validation.tasks
  /// Sources among these whose pairs are compared with a reference.
  std::vector<PairData> referenced;
};

/// What opening the data of a run needs.
struct DataInputs {
  const RunConfig& config;
  const ModelConfig& model;
  const objects::Access& objects;
  comm::Communicator& world;
  /// The model's tokenizer, null if the model has none: stores must have been made with
  /// it, and it must still make the same ids.
  const tokenizer::Tokenizer* tokenizer;
  /// Rank 0's reader of HDF5, where needs_shard_reader() asks for one.
  data::ShardReader* shards;
  system::Logger& log;
};

/// Opens the training and validation data and the tasks, and packs first what has to be
/// packed (packed_data.h). Throws InputError and ConfigError, which name the source.
/// Collective.
RunData open_data(const DataInputs& inputs);

}  // namespace longhaul::train
