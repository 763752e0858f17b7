#include "longhaul/infer/prompt.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"

namespace longhaul::infer {

std::vector<int64_t> encode_prompt(const tokenizer::Tokenizer& tokenizer,
                                   const std::string& text, int64_t vocab_size) {
  std::vector<int64_t> ids;
  for (const tokenizer::TokenId id : tokenizer.special_prefix()) ids.push_back(id);
  for (const tokenizer::TokenId id : tokenizer.encode(text, false)) ids.push_back(id);
  if (ids.empty())
    throw InputError("generate", "the prompt has no tokens; give some text");
  for (const int64_t id : ids) {
    if (id < vocab_size) continue;
    fail_input("generate",
               "token id {} is not below {}, the size of the model's vocabulary; give "
               "the model's own tokenizer",
               id, vocab_size);
  }
  return ids;
}

}  // namespace longhaul::infer
