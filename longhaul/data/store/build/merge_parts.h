#pragma once

#include "longhaul/data/store/build/build_directory.h"
#include "longhaul/data/store/build/build_parts.h"

namespace longhaul::data {

/// Makes whole stores in directory.train() and directory.validation() of the records of
/// all parts. No token is copied: a store lists the parts' shards. Throws InputError when
/// there are too many bad records, or when a store would be empty. In the second case the
/// parts are removed.
void merge_parts(const BuildContext& context, const BuildPlan& plan,
                 const tokenizer::Tokenizer* tokenizer);

/// Moves the whole stores to their places and empties the directory, except for the lock
/// and the plan. A call that was interrupted at any moment can be repeated.
void commit_stores(const BuildDirectory& directory, const fs::path& out);

}  // namespace longhaul::data
