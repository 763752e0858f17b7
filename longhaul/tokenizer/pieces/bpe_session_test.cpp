#include "longhaul/tokenizer/pieces/bpe_session.h"

#include <gtest/gtest.h>

#include <cctype>
#include <random>
#include <string>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/tokenizer/unicode/byte_alphabet.h"

namespace longhaul::tokenizer {
namespace {

constexpr SplitPattern kPatterns[] = {SplitPattern::Gpt2, SplitPattern::Llama3,
                                      SplitPattern::Qwen2, SplitPattern::O200k};

/// Parts of texts that the split patterns treat differently, often side by side.
const char* const kParts[] = {
    " ",      "  ",     "\n",      "\r\n",   "\t",
    " \n ",   "'",      "''",      "'s",     "'S",
    "'re",    "'ll",    "'m",      "'d",     "'ve",
    "'t",     "'lx",    "'v",      "a",      "Z",
    "the",    "HTTP",   "xY",      "1",      "12",
    "345",    ".",      "..",      "/",      "//",
    "/\n",    "\n/",    "_",       "-- ",    "(",
    "\"",     "\x01",   "\x7f",    "\v",     "\f",
    "\u00e9", "\u017f", "'\u017f", "\u00a0", "\u4e2d",
    "\u4e2e", "\u0663", "\u2028",  "\u0301", "\xF0\x9F\x98\x80"};

std::string odd_text(std::mt19937& random, size_t parts) {
  std::string text;
  const size_t plain = random() % 3;  // some texts are ASCII only
  for (size_t i = 0; i < parts; ++i) {
    const size_t some = std::size(kParts) - (plain == 0 ? 0 : 10);
    text += kParts[random() % some];
  }
  return text;
}

/// Returns a model of all bytes, with merges of texts that are frequent in odd_text.
BpeSpec byte_spec() {
  BpeSpec spec;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    spec.vocab.emplace_back(bytes_to_token({&c, 1}));
  }
  const auto join = [&](std::string_view left, std::string_view right) {
    const auto find = [&](std::string_view text) {
      const std::string token = bytes_to_token(text);
      uint32_t id = 0;
      while (spec.vocab[id] != token) ++id;
      return id;
    };
    const Merge merge{find(left), find(right), static_cast<uint32_t>(spec.vocab.size())};
    spec.vocab.emplace_back(bytes_to_token(std::string(left) + std::string(right)));
    spec.merges.push_back(merge);
  };
  join("\xE4", "\xB8");
  join("t", "h");
  join("th", "e");
  join(" ", "the");
  join("\xE4\xB8", "\xAD");
  join(" ", " ");
  join("\xAD", "\xE4");
  join("\xE4\xB8\xAD", "\xE4\xB8\xAD");
  // The bytes of U+4E2E merge with the character before sooner than with each other.
  join("\xAE", "\xE4\xB8");
  join("\xE4\xB8", "\xAE");
  join("1", "2");
  join(".", ".");
  return spec;
}

/// Merges one pair after the other, the lowest rank first, without any table.
std::vector<uint32_t> merged_plainly(const BpeSpec& spec, std::string_view piece) {
  std::vector<uint32_t> ids;
  for (const char c : piece) ids.push_back(static_cast<uint8_t>(c));
  for (bool again = true; again;) {
    again = false;
    for (const Merge& merge : spec.merges) {
      for (size_t i = 0; i + 1 < ids.size() && !again; ++i) {
        if (ids[i] != merge.left || ids[i + 1] != merge.right) continue;
        ids[i] = merge.result;
        ids.erase(ids.begin() + static_cast<ptrdiff_t>(i) + 1);
        again = true;
      }
      if (again) break;
    }
  }
  return ids;
}

std::vector<uint32_t> plainly(const BpeSpec& spec, SplitPattern pattern,
                              std::string_view text) {
  std::vector<uint32_t> ids;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = next_piece_end(pattern, char_classes(), text, pos);
    for (const uint32_t id : merged_plainly(spec, text.substr(pos, end - pos))) {
      ids.push_back(id);
    }
    pos = end;
  }
  return ids;
}

/// Returns the classes of bytes, found one by one.
AsciiClasses classified_plainly(const char* text) {
  AsciiClasses classes;
  for (int i = 0; i < 64; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const bool ascii = byte < 0x80;
    const auto note = [&](bool is, uint64_t& bits) { bits |= uint64_t{is} << i; };
    note(ascii && std::isalpha(byte), classes.letters);
    note(ascii && std::isupper(byte), classes.uppers);
    note(ascii && std::isdigit(byte), classes.digits);
    note(ascii && std::isspace(byte), classes.spaces);
    note(byte == '\n' || byte == '\r', classes.newlines);
    note(byte == ' ', classes.blanks);
    note(byte == '\'', classes.quotes);
    note(byte == '/', classes.slashes);
    note(!ascii, classes.others);
  }
  return classes;
}

/// Returns the instruction sets of this CPU that have a classifier.
std::vector<system::Isa> classifying_isas() {
  if (system::best_isa() == system::Isa::Avx2) return {system::Isa::Avx2};
  return {system::Isa::Avx2, system::Isa::Avx512};
}

TEST(AsciiClasses, EveryClassifierOfThisMachineSaysTheSameOfEveryByte) {
  std::string text;
  for (int byte = 0; byte < 256 + 64; ++byte) text.push_back(static_cast<char>(byte));
  for (size_t pos = 0; pos < 256; ++pos) {
    const AsciiClasses expected = classified_plainly(text.data() + pos);
    for (const system::Isa isa : classifying_isas()) {
      AsciiClasses found;
      ascii_classifier(isa)(text.data() + pos, found);
      EXPECT_EQ(expected.letters, found.letters) << pos;
      EXPECT_EQ(expected.uppers, found.uppers) << pos;
      EXPECT_EQ(expected.digits, found.digits) << pos;
      EXPECT_EQ(expected.spaces, found.spaces) << pos;
      EXPECT_EQ(expected.newlines, found.newlines) << pos;
      EXPECT_EQ(expected.blanks, found.blanks) << pos;
      EXPECT_EQ(expected.quotes, found.quotes) << pos;
      EXPECT_EQ(expected.slashes, found.slashes) << pos;
      EXPECT_EQ(expected.others, found.others) << pos;
    }
  }
}

TEST(AsciiSplit, PiecesOfAWindowAreThoseOfTheGeneralMatcher) {
  std::mt19937 random(1);
  size_t seen = 0;
  for (int round = 0; round < 60000; ++round) {
    std::string text = odd_text(random, 1 + random() % 40);
    const size_t size = text.size();
    text.resize(std::max(size, kAsciiWindow), '\0');
    const AsciiClasses classes = classified_plainly(text.data());
    const std::string_view whole = std::string_view(text).substr(0, size);
    for (const SplitPattern pattern : kPatterns) {
      uint64_t starts =
          ascii_piece_starts(pattern, classes, text.data(), std::min(size, kAsciiWindow));
      ASSERT_TRUE(starts & 1);
      size_t pos = 0;
      for (starts &= starts - 1; starts != 0; starts &= starts - 1, ++seen) {
        const size_t end = next_piece_end(pattern, char_classes(), whole, pos);
        ASSERT_EQ(end, static_cast<size_t>(std::countr_zero(starts)))
            << split_name(pattern) << " at " << pos << " of " << whole;
        pos = end;
      }
    }
  }
  EXPECT_GT(seen, 1'000'000u);  // most text goes this way
}

TEST(BpeSession, IdsAreThoseOfPlainMergingWithEveryClassifier) {
  const BpeSpec spec = byte_spec();
  const BpeModel model(spec);
  for (const system::Isa isa : classifying_isas()) {
    BpeSession session(model, isa);
    std::mt19937 random(2);
    for (int round = 0; round < 2000; ++round) {
      const std::string text = odd_text(random, random() % 150);
      for (const SplitPattern pattern : kPatterns) {
        std::vector<uint32_t> ids;
        session.encode_text(pattern, text, ids);
        ASSERT_EQ(plainly(spec, pattern, text), ids) << split_name(pattern) << text;
      }
    }
  }
}

TEST(BpeSession, MorePiecesThanTheCacheHoldsChangeNoId) {
  const BpeSpec spec = byte_spec();
  const BpeModel model(spec);
  BpeSession session(model);
  std::mt19937 random(3);
  for (int round = 0; round < 150; ++round) {
    std::string text;
    for (int word = 0; word < 5000; ++word) {
      text += " ";
      for (size_t i = random() % 24; i > 0; --i) text += "theTHE"[random() % 6];
    }
    std::vector<uint32_t> ids;
    session.encode_text(SplitPattern::Llama3, text, ids);
    if (round % 50 != 0) continue;
    ASSERT_EQ(plainly(spec, SplitPattern::Llama3, text), ids);
  }
}

TEST(BpeSession, LongPiecesAreMergedWhole) {
  const BpeSpec spec = byte_spec();
  const BpeModel model(spec);
  BpeSession session(model);
  for (const size_t size : {15, 16, 17, 63, 64, 65, 127, 128, 129, 1000, 5000}) {
    for (const std::string& text :
         {std::string(size, ' '), std::string(size, '.'), std::string(size, '1'),
          std::string(size, 't') + "he"}) {
      for (int again = 0; again < 2; ++again) {
        std::vector<uint32_t> ids{7};
        session.encode_text(SplitPattern::Llama3, text, ids);
        ASSERT_EQ(7u, ids.front());
        ids.erase(ids.begin());
        ASSERT_EQ(plainly(spec, SplitPattern::Llama3, text), ids) << size;
      }
    }
  }
}

TEST(BpeSession, AByteWithoutTokenIsRefusedAndTheSessionServesOn) {
  BpeSpec spec;
  spec.vocab = {"a", "b", "ab"};
  spec.merges = {{0, 1, 2}};
  const BpeModel model(spec);
  BpeSession session(model);
  std::vector<uint32_t> ids;
  EXPECT_THROW(session.encode_text(SplitPattern::Llama3, "ab.ab", ids), InputError);
  ids.clear();
  session.encode_text(SplitPattern::Llama3, "abab", ids);
  EXPECT_EQ((std::vector<uint32_t>{2, 2}), ids);
}

}  // namespace
}  // namespace longhaul::tokenizer
