#include "longhaul/data/bert/sentences.h"

#include <gtest/gtest.h>

#include <string>

namespace longhaul::data {
namespace {

/// Returns "a|b" for the sentences of a document, with " // " between documents.
std::string shown(std::string_view text, SentenceRule rule) {
  std::string out;
  for (const auto& document : split_documents(text, rule)) {
    if (!out.empty()) out += " // ";
    for (size_t i = 0; i < document.size(); ++i) {
      out += (i > 0 ? "|" : "") + std::string(document[i]);
    }
  }
  return out;
}

TEST(Sentences, LinesAreSentencesAndBlankLinesPartDocuments) {
  EXPECT_EQ(shown("one.  Still one.\n two\t\r\n\n \n\nthree", SentenceRule::Lines),
            "one.  Still one.|two // three");
  EXPECT_EQ(shown(" \n\n", SentenceRule::Lines), "");
}

TEST(Sentences, PunctuationEndsThemBeforeABlank) {
  const auto split = [](std::string_view text) {
    return shown(text, SentenceRule::Punctuation);
  };
  EXPECT_EQ(split("It rains. He said \"No!\" (twice.) Why?! Done"),
            "It rains.|He said \"No!\"|(twice.)|Why?!|Done");
  EXPECT_EQ(split("Dr. J. Smith paid 3.50 at 5 p.m. to example.org. Then he left."),
            "Dr. J. Smith paid 3.50 at 5 p.m. to example.org.|Then he left.");
  EXPECT_EQ(split("One\n\nTwo. Three"), "One|Two.|Three");
  EXPECT_EQ(split("今天下雨。他说：“不！”然后走了。"),
            "今天下雨。|他说：“不！”|然后走了。");
  EXPECT_EQ(split("Wait… What? etc. and so on"), "Wait…|What? etc. and so on");
}

TEST(Sentences, NothingOfTheTextIsLost) {
  const std::string text = "A b. C d! E? \"F.\" G. h\n\n I... J";
  for (const SentenceRule rule : {SentenceRule::Lines, SentenceRule::Punctuation}) {
    std::string letters;
    for (const auto& document : split_documents(text, rule)) {
      for (const std::string_view sentence : document) letters += sentence;
    }
    const auto dense = [](std::string whole) {
      std::erase_if(whole, [](char c) { return c == ' ' || c == '\n'; });
      return whole;
    };
    EXPECT_EQ(dense(letters), dense(text));
  }
}

}  // namespace
}  // namespace longhaul::data
