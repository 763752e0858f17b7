#pragma once

#include "longhaul/data/store/build/build_directory.h"
#include "longhaul/data/store/build/build_parts.h"

namespace longhaul::data {

/// From the records of all parts to whole stores in directory.train() and validation():
/// by index only, no token is copied. InputError when a store would be empty (what was
/// built is removed then), or when there are too many bad records.
void merge_parts(const BuildContext& context, const BuildPlan& plan,
                 const tokenizer::Tokenizer* tokenizer);

/// Moves the whole stores to their places and removes the directory, except for the lock.
/// Can be ended at any moment and called again.
void commit_stores(const BuildDirectory& directory, const fs::path& out);

}  // namespace longhaul::data
