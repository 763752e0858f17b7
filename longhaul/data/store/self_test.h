#pragma once

#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

/// Texts and the ids that a store's tokenizer made of them when the store was built:
/// fixed odd strings, and the beginning of the store's first document. A fingerprint says
/// that a tokenizer's files are the same; this says that they still mean the same.
struct SelfTest {
  std::vector<std::string> texts;
  std::vector<std::vector<tokenizer::TokenId>> ids;
  std::string hash() const;
};

inline constexpr const char* kSelfTestName = "self_test.json";

/// `more` come behind the fixed texts. A fixed text that the tokenizer refuses (a
/// vocabulary without the characters) is left out.
SelfTest make_self_test(const tokenizer::Tokenizer& tokenizer,
                        const std::vector<std::string>& more);
std::string self_test_text(const SelfTest& test);
/// InputError for a file that is none.
SelfTest read_self_test(const fs::path& path);

/// InputError when `tokenizer` makes other ids than the store's self-test says, with the
/// text and the first id that differs. Nothing for what is not a token store, and for one
/// of ready ids. `whose`: "the model's tokenizer".
void check_self_test(const fs::path& store, const tokenizer::Tokenizer& tokenizer,
                     const std::string& whose);

}  // namespace longhaul::data
