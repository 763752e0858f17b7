#include "apps/try/text_sample.h"

#include <gtest/gtest.h>

#include <set>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::apps {
namespace {

data::InputOptions inputs_of(const fs::path& path) {
  data::InputOptions options;
  options.arguments = {path.string()};
  return options;
}

std::string refusal(const fs::path& path, uint64_t most_bytes = 1'000'000) {
  try {
    (void)take_text(inputs_of(path), most_bytes);
  } catch (const InputError& error) {
    return error.what();
  }
  return "it was taken";
}

std::string repeated(const std::string& line, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += line;
  return text;
}

std::string together(const std::vector<std::string>& documents) {
  std::string text;
  for (const std::string& document : documents) text += document;
  return text;
}

TEST(CutIntoDocuments, CutsAtLineEndsAndLosesNothing) {
  const std::string text = repeated("a line of some words\n", 1000);
  const auto documents = cut_into_documents(text, 100);
  EXPECT_EQ(together(documents), text);
  EXPECT_GT(documents.size(), 5u);
  for (const std::string& document : documents) {
    EXPECT_EQ(document.back(), '\n');
    EXPECT_LE(document.size(), 200u);
  }
}

TEST(CutIntoDocuments, CutsLongLinesBetweenCharacters) {
  const std::string text = repeated("紅樓夢", 5000);
  const auto documents = cut_into_documents(text, 100);
  EXPECT_EQ(together(documents), text);
  for (const std::string& document : documents) {
    EXPECT_FALSE(find_invalid_utf8(document)) << document;
    EXPECT_LE(document.size(), 200u);
  }
}

TEST(CutIntoDocuments, CutsARepeatedTextIntoDifferentPieces) {
  const std::string text = repeated("名可名，非常名。\n", 50'000);
  const auto documents = cut_into_documents(text, 200, Cut::Unevenly);
  EXPECT_EQ(together(documents), text);
  EXPECT_GT(std::set<std::string>(documents.begin(), documents.end()).size(), 90u);
  for (const std::string& document : documents) {
    EXPECT_FALSE(find_invalid_utf8(document)) << document;
  }
}

TEST(CutIntoDocuments, LeavesOutWhatIsWhiteSpaceAlone) {
  EXPECT_TRUE(cut_into_documents(repeated(" \n", 1000), 100).empty());
}

TEST(TakeText, ASmallTextIsTakenWhole) {
  const TestDirectory dir;
  const std::string text = repeated("some words of a book\n", 30'000);
  write_file(dir / "book.txt", text);
  const TextSample sample = take_text(inputs_of(dir / "book.txt"), 1'000'000);
  EXPECT_EQ(together(sample.documents), text);
  EXPECT_TRUE(sample.whole);
  EXPECT_TRUE(sample.repeats);
  EXPECT_EQ(sample.bytes, text.size());
  EXPECT_GE(sample.documents.size(), 150u) << "so that some of them can be held out";
}

TEST(TakeText, ATextThatSaysManyThingsIsCutAtItsLines) {
  const TestDirectory dir;
  std::string text;
  for (int i = 0; text.size() < 30'000; ++i) text += "line " + std::to_string(i) + "\n";
  write_file(dir / "book.txt", text);
  const TextSample sample = take_text(inputs_of(dir / "book.txt"), 1'000'000);
  EXPECT_FALSE(sample.repeats);
  EXPECT_EQ(together(sample.documents), text);
  for (const std::string& document : sample.documents) EXPECT_EQ(document.back(), '\n');
}

TEST(TakeText, OfALargeTextTheBeginningIsTakenUpToALineEnd) {
  const TestDirectory dir;
  const std::string text = repeated("some words of a book\n", 300'000);
  write_file(dir / "book.txt", text);
  const TextSample sample = take_text(inputs_of(dir / "book.txt"), 100'000);
  const std::string taken = together(sample.documents);
  EXPECT_FALSE(sample.whole);
  EXPECT_EQ(sample.stored_bytes, text.size());
  EXPECT_EQ(taken, text.substr(0, taken.size()));
  EXPECT_GT(taken.size(), 99'000u);
  EXPECT_LE(taken.size(), 100'000u);
  EXPECT_EQ(taken.back(), '\n');
}

TEST(TakeText, AHugeFileIsNotReadWhole) {
  const TestDirectory dir;
  write_file(dir / "huge.txt", repeated("some words of a book\n", 200'000));
  // The rest of the file is a hole of zero bytes, which take_text() would refuse if it
  // read them.
  fs::resize_file(dir / "huge.txt", uint64_t{2} << 30);
  const TextSample sample = take_text(inputs_of(dir / "huge.txt"), 100'000);
  EXPECT_FALSE(sample.whole);
  EXPECT_LE(sample.bytes, 100'000u);
}

TEST(TakeText, JsonLinesAndSourceCodeAreTaken) {
  const TestDirectory dir;
  write_file(dir / "a.jsonl", repeated("{\"text\": \"words in a record\"}\n", 60'000));
  const TextSample records = take_text(inputs_of(dir / "a.jsonl"), 1'000'000);
  EXPECT_TRUE(records.documents.front().starts_with("words in a record\nwords"));
  EXPECT_TRUE(records.whole);
  EXPECT_FALSE(take_text(inputs_of(dir / "a.jsonl"), 25'000).whole);
  write_file(dir / "main.cpp", repeated("int a = 1;\n", 30'000));
  EXPECT_EQ(take_text(inputs_of(dir / "main.cpp"), 1'000'000).bytes, 30'008u);
}

TEST(TakeText, WhatIsNoTextIsRefusedByNameAndByte) {
  const TestDirectory dir;
  write_file(dir / "empty.txt", "");
  EXPECT_HAS(refusal(dir / "empty.txt"), "empty.txt: no text is in it");
  write_file(dir / "blank.txt", repeated("\n", 50'000));
  EXPECT_HAS(refusal(dir / "blank.txt"), "blank.txt: no text is in it");
  write_file(dir / "short.txt", "A few words.");
  EXPECT_HAS(refusal(dir / "short.txt"),
             "short.txt: too short: 12 B of text, and 20.0 kB");
  write_file(dir / "photo.jpg", std::string("\xFF\xD8 photo"));
  EXPECT_HAS(refusal(dir / "photo.jpg"), "photo.jpg: is no text in UTF-8: byte 0 (0xFF)");
  write_file(dir / "zero.txt", std::string("ab\0cd", 5));
  EXPECT_HAS(refusal(dir / "zero.txt"), "zero.txt: is no text in UTF-8: byte 2 is zero");
  write_file(dir / "wide.txt", std::string("\xFF\xFE"
                                           "a\0b\0",
                                           6));
  EXPECT_HAS(refusal(dir / "wide.txt"), "iconv -f UTF-16 -t UTF-8");
  write_file(dir / "latin.txt", "caf\xE9 au lait");
  EXPECT_HAS(refusal(dir / "latin.txt"), "byte 3 (0xE9) is not UTF-8");
  EXPECT_HAS(refusal(dir / "missing.txt"), "missing.txt");
}

TEST(HeldOutShare, IsATwentiethAndMoreOfShortTexts) {
  EXPECT_EQ(held_out_share(8'000'000), 0.05);
  EXPECT_EQ(held_out_share(40'000), 0.1);
  EXPECT_EQ(held_out_share(kLeastText), 0.2);
}

TEST(PromptOf, IsTheBeginningOfALineInWholeWords) {
  TextSample sample;
  sample.documents = {"first", "Whether this sentence is long or not\nmore"};
  EXPECT_EQ(prompt_of(sample), "Whether this sentence is");
  sample.documents = {"first", "第二回賈夫人仙逝揚州城冷子興演說榮國府賈夫人仙逝揚州城"};
  EXPECT_EQ(prompt_of(sample), "第二回賈夫人仙逝揚州城冷子興演說榮國府賈夫人仙逝");
  sample.documents = {"first", "$|++;\nperl", "=head1", "of the words here"};
  EXPECT_EQ(prompt_of(sample), "of the words here") << "words rather than signs";
  sample.documents = {"first", "$|++;\nperl"};
  EXPECT_EQ(prompt_of(sample), "$|++;");
  sample.documents = {"\x1b[31m", "\x01\x02\x03\x04\x05"};
  EXPECT_EQ(prompt_of(sample), "The") << "no control characters";
}

}  // namespace
}  // namespace longhaul::apps
