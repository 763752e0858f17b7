#pragma once

#include <string>

#include "longhaul/data/store/token_store.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

/// The beginning and the end of a store's first document on one line, special tokens
/// written out: what training will see.
std::string decoded_sample(const TokenStore& store,
                           const tokenizer::Tokenizer& tokenizer);

}  // namespace longhaul::data
