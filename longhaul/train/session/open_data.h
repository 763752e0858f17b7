#pragma once

#include "longhaul/data/bert/shard_reader.h"
#include "longhaul/system/log.h"
#include "longhaul/tokenizer/tokenizer.h"
#include "longhaul/train/session/session.h"

namespace longhaul::train {

/// Opens the session's training and validation data; packs first what has to be packed
/// (see packed_data.h). `tokenizer` is the model's, null if it has none: stores have to
/// be made with it, and it has to make the same ids still. `shards`: rank 0's reader of
/// HDF5, where needs_shard_reader() asks for one. InputError and ConfigError name the
/// source. Collective.
void open_data(Session& session, const tokenizer::Tokenizer* tokenizer,
               data::ShardReader* shards, Logger& log);

}  // namespace longhaul::train
