#pragma once

#include <memory>

#include "longhaul/data/sources/token_source.h"
#include "longhaul/data/store/token_store.h"

namespace longhaul::data {

/// Sequence i is tokens [i s, i s + s], the last of them only a target. A token that is
/// no target becomes kIgnore where it would be predicted. With `document_mask` position
/// and attention begin anew at each document; a document's last token still predicts the
/// next one's first, which is how generation begins after EOS.
std::unique_ptr<TokenSource> store_source(const fs::path& path, int64_t seq_len,
                                          bool document_mask, bool verify);

}  // namespace longhaul::data
