#pragma once

#include <memory>

#include "longhaul/data/sources/token_source.h"
#include "longhaul/data/store/row_plan.h"

namespace longhaul::data {

/// Opens a token store as rows of whole documents (row_plan.h). Attention and positions
/// begin anew at each document, and the first token of a document is no target. A row's
/// end is padding of token 0, which is a document of its own and has no target. The
/// fingerprint is the plan's key. With `verify` each block of the store is compared with
/// its hash when it is first read. Throws InputError if no document is in a row.
std::unique_ptr<TokenSource> whole_rows_source(const fs::path& path, const WholeRows& how,
                                               bool verify);

}  // namespace longhaul::data
