#pragma once

#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/objects/pieces.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

/// Texts and the ids that a store's tokenizer made of these texts when the store was
/// built. The texts are fixed unusual strings and the beginning of the store's first
/// document. A tokenizer's fingerprint shows that its files are the same. The self-test
/// shows that the program still makes the same ids with these files.
struct SelfTest {
  std::vector<std::string> texts;
  std::vector<std::vector<tokenizer::TokenId>> ids;
  std::string hash() const;
};

inline constexpr const char* kSelfTestName = "self_test.json";

/// Makes a self-test of the fixed texts and then of `more`. A text that the tokenizer
/// refuses, because its vocabulary lacks the characters, is left out.
SelfTest make_self_test(const tokenizer::Tokenizer& tokenizer,
                        const std::vector<std::string>& more);
std::string self_test_text(const SelfTest& test);
/// Throws InputError for a file that is no self-test.
SelfTest read_self_test(const fs::path& path);

/// Throws InputError, with the text and the first id that differs, when `tokenizer` makes
/// other ids than the store's self-test has. Does nothing for a path that is no token
/// store and for a store that was built from token ids. `whose` names the tokenizer in
/// messages: "the model's tokenizer".
void check_self_test(const fs::path& store, const tokenizer::Tokenizer& tokenizer,
                     const std::string& whose);

/// Returns a warning if the store has chats or pairs that were not written by the
/// templates and the special tokens beside the tokenizer's file, which exports of a run
/// carry; else an empty text. `pieces` is given for a store whose shards are fetched when
/// they are read.
std::string compare_templates(const fs::path& store,
                              const tokenizer::Tokenizer& tokenizer,
                              const objects::Pieces* pieces = nullptr);

}  // namespace longhaul::data
