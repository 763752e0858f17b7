#pragma once

#include "longhaul/data/bert/shard_reader.h"
#include "longhaul/system/log.h"
#include "longhaul/tokenizer/tokenizer.h"
#include "longhaul/train/session/session.h"

namespace longhaul::train {

/// Opens the session's training and validation data, and packs first what has to be
/// packed (packed_data.h). `tokenizer` is the model's, null if the model has none: stores
/// must have been made with it, and it must still make the same ids. `shards` is rank 0's
/// reader of HDF5, where needs_shard_reader() asks for one. Throws InputError and
/// ConfigError, which name the source. Collective.
void open_data(Session& session, const tokenizer::Tokenizer* tokenizer,
               data::ShardReader* shards, system::Logger& log);

}  // namespace longhaul::train
