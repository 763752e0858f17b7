#include "longhaul/tokenizer/stream_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/tokenizer/unicode/byte_alphabet.h"
#include "tests/support/weights_files.h"

namespace longhaul::tokenizer {
namespace {

using testing::TempDir;
using testing::write_file;

std::string streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  StreamDecoder stream(tokenizer, false);
  std::string text;
  for (const TokenId id : ids) text += stream.add(id);
  return text + stream.finish();
}

/// Returns a tokenizer of these words with the ids 0, 1, ...
std::unique_ptr<Tokenizer> tokenizer_of(const TempDir& dir,
                                        const std::vector<std::string>& words,
                                        const std::string& decoder) {
  Json json = {{"decoder", {{"type", decoder}}},
               {"model", {{"type", "BPE"}, {"merges", Json::array()}}}};
  Json vocabulary = Json::object();
  for (size_t i = 0; i < words.size(); ++i) vocabulary[words[i]] = i;
  json["model"]["vocab"] = vocabulary;
  write_file(dir / "tokenizer.json", json.dump());
  return Tokenizer::load(dir.path());
}

TEST(StreamDecoder, TokensThatEndOneCharacterAndBeginTheNextGiveEveryCharacter) {
  const std::string texts[] = {"ภาษาไทยเป็นภาษาที่มีระดับเสียง", "中文字符串没有空格分隔的文本",
                               "👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧",
                               "héé ñandú, ça va? ÿ"};
  std::mt19937 random(17);
  for (int round = 0; round < 200; ++round) {
    const std::string& text = texts[round % 4];
    std::vector<std::string> words;
    std::vector<TokenId> ids;
    for (size_t at = 0; at < text.size();) {
      const size_t size = round < 8 ? 3 : 1 + random() % 5;
      // The first token is one byte, so that the others are cut across characters.
      const std::string word = bytes_to_token(text.substr(at, at == 0 ? 1 : size));
      at += at == 0 ? 1 : size;
      const auto found = std::ranges::find(words, word);
      ids.push_back(static_cast<TokenId>(found - words.begin()));
      if (found == words.end()) words.push_back(word);
    }
    const TempDir dir;
    const auto tokenizer = tokenizer_of(dir, words, "ByteLevel");
    ASSERT_EQ(tokenizer->decode(ids, false), text);
    EXPECT_EQ(streamed(*tokenizer, ids), text);
  }
}

TEST(StreamDecoder, BytesThatFollowACharacterAreHeldUntilTheyAreOne) {
  const TempDir dir;
  const auto tokenizer =
      tokenizer_of(dir, {"<0xE2>", "<0x82>", "<0xAC>", "a"}, "ByteFallback");
  StreamDecoder stream(*tokenizer, false);
  std::vector<std::string> parts;
  for (const TokenId id : {3, 0, 1, 2, 0, 1, 2, 3, 0, 3}) parts.push_back(stream.add(id));
  EXPECT_EQ(parts, (std::vector<std::string>{"a", "", "", "€", "", "", "€", "a", "",
                                             "\uFFFDa"}));
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamDecoder, WhatIsNoCharacterIsGivenAtTheEndAndBeforeManyTokens) {
  const TempDir dir;
  const auto tokenizer = tokenizer_of(dir, {bytes_to_token("\xE2"), "a"}, "ByteLevel");
  const std::vector<TokenId> ids(500, 0);
  EXPECT_EQ(streamed(*tokenizer, ids), tokenizer->decode(ids, false));
  StreamDecoder stream(*tokenizer, false);
  std::string text;
  for (int i = 0; i < 10; ++i) text += stream.add(0);
  EXPECT_GE(text.size(), 3 * 7) << "held back for ever";
}

TEST(StreamDecoder, ATextBehindManySkippedTokensKeepsItsLeadingSpace) {
  const TempDir dir;
  const Json json = Json::parse(R"({
    "added_tokens": [{"id": 2, "content": "<image>", "special": true}],
    "decoder": {"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": true},
    "model": {"type": "BPE", "merges": [],
              "vocab": {"\u2581a": 0, "\u2581b": 1, "<image>": 2}}})");
  write_file(dir / "tokenizer.json", json.dump());
  const auto tokenizer = Tokenizer::load(dir.path());
  for (const size_t before : {0, 1}) {
    for (const size_t skipped : {1, 63, 64, 65, 500}) {
      std::vector<TokenId> ids(before, 0);
      ids.insert(ids.end(), skipped, 2);
      ids.insert(ids.end(), {1, 0});
      StreamDecoder stream(*tokenizer, true);
      std::string text;
      for (const TokenId id : ids) text += stream.add(id);
      EXPECT_EQ(text + stream.finish(), before == 0 ? "b a" : "a b a") << skipped;
    }
  }
}

}  // namespace
}  // namespace longhaul::tokenizer
