#pragma once

#include <memory>

#include "longhaul/data/sources/token_source.h"
#include "longhaul/data/store/token_store.h"

namespace longhaul::data {

/// Opens a token store as sequences of s = seq_len tokens. Sequence i is tokens [i s, i s
/// + s], and the last of these s + 1 tokens is only a target. A token that is no target
/// is replaced by kIgnore among the targets. With `document_mask` positions and attention
/// begin anew at each document. A document's last token still predicts the next
/// document's first token, since generation begins after EOS in the same way. The shards
/// of a store in `pieces` are fetched when a read touches them. A read releases all
/// shards except the shard that its sequence begins in.
std::unique_ptr<TokenSource> store_source(
    const fs::path& path, int64_t seq_len, bool document_mask, bool verify,
    std::shared_ptr<const objects::Pieces> pieces = nullptr);

}  // namespace longhaul::data
