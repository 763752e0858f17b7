#pragma once

#include <string>

#include "longhaul/base/log.h"
#include "longhaul/train/session.h"

namespace longhaul::train {

/// Opens the session's training and validation data; packs first what has to be packed
/// (see packed_data.h). `tokenizer` is the fingerprint of the model's tokenizer, empty if
/// it has none. InputError and ConfigError name the source. Collective.
void open_data(Session& session, const std::string& tokenizer, Logger& log);

}  // namespace longhaul::train
