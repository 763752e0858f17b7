#pragma once

#include "longhaul/base/log.h"
#include "longhaul/data/tokenizer/tokenizer.h"
#include "longhaul/train/session.h"

namespace longhaul::train {

/// Opens the session's training and validation data; packs first what has to be packed
/// (see packed_data.h). `tokenizer` is the model's, null if it has none: stores have to
/// be made with it, and it has to make the same ids still. InputError and ConfigError
/// name the source. Collective.
void open_data(Session& session, const data::Tokenizer* tokenizer, Logger& log);

}  // namespace longhaul::train
