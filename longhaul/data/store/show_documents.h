#pragma once

#include <cstdint>
#include <string>

#include "longhaul/base/json.h"
#include "longhaul/data/store/token_store.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

/// Documents of a token store in full, for people and for programs.
struct ShownDocuments {
  std::string text;
  OrderedJson json;  ///< a list of documents, each a list of {"text", "target"}
};

/// Shows the first documents of a store with what of them is a target: in colour, else
/// between [[ and ]]. Special tokens are written out. Control characters other than line
/// ends become spaces.
ShownDocuments show_documents(const TokenStore& store,
                              const tokenizer::Tokenizer& tokenizer, int64_t documents,
                              bool colour);

}  // namespace longhaul::data
