#include "longhaul/data/input/documents.h"

#include <gtest/gtest.h>

#include "tests/support/inputs.h"

namespace longhaul::data {
namespace {

std::vector<std::string> read_all(const std::vector<fs::path>& files,
                                  BadRecords bad = BadRecords::Fail,
                                  DroppedRecords* dropped = nullptr) {
  DocumentReader reader(inputs_of(files), bad);
  std::vector<std::string> texts;
  std::string text;
  while (reader.next(text)) texts.push_back(text);
  if (dropped != nullptr) *dropped = reader.dropped();
  return texts;
}

TEST(Documents, ReadsJsonLinesPlainAndGzipAndWholeTextFiles) {
  const TestDirectory dir;
  const std::string lines =
      "{\"id\": 1, \"text\": \"one \\u00e9\\n\"}\r\n{\"text\": \"two\"}";
  const auto plain = dir.write("a.jsonl", lines);
  const auto packed = dir.write("b.json.gz", gzipped(lines));
  const auto text = dir.write("c.txt", "line 1\nline 2\n");
  const auto packed_text = dir.write("d.txt.gz", gzipped("packed\ntext"));
  EXPECT_EQ(read_all({plain, packed, text, packed_text}),
            (std::vector<std::string>{"one \xC3\xA9\n", "two", "one \xC3\xA9\n", "two",
                                      "line 1\nline 2\n", "packed\ntext"}));
}

TEST(Documents, ReadsLinesAcrossTheEdgesOfItsBuffers) {
  const TestDirectory dir;
  std::string lines;
  std::vector<std::string> expected;
  for (size_t i = 0; i < 60; ++i) {
    expected.emplace_back(1 + i * 1777, static_cast<char>('a' + i % 26));
    lines += "{\"text\":\"" + expected.back() + "\"}\n";
  }
  EXPECT_EQ(read_all({dir.write("a.jsonl", lines)}), expected);
  EXPECT_EQ(read_all({dir.write("b.jsonl.gz", gzipped(lines))}), expected);
}

TEST(Documents, ReadsGzipFilesOfSeveralMembers) {
  const TestDirectory dir;
  const auto file = dir.write(
      "a.jsonl.gz", gzipped("{\"text\":\"x\"}\n{\"te") + gzipped("xt\":\"y\"}\n"));
  EXPECT_EQ(read_all({file}), (std::vector<std::string>{"x", "y"}));
}

TEST(Documents, RefusesTruncatedAndDamagedGzipWithTheOffset) {
  const TestDirectory dir;
  std::string text;
  for (int i = 0; i < 5000; ++i)
    text += "{\"text\":\"" + std::to_string(i * 7919) + "\"}\n";
  std::string packed = gzipped(text);
  const std::string half = packed.substr(0, packed.size() / 2);
  const auto cut = dir.write("cut.jsonl.gz", half);
  const std::string message = input_error([&] { read_all({cut}); });
  EXPECT_HAS(message, "cut.jsonl.gz");
  EXPECT_HAS(message, "truncated");
  EXPECT_HAS(message, "at byte " + std::to_string(half.size()));
  packed[packed.size() / 2] = static_cast<char>(packed[packed.size() / 2] ^ 0x55);
  const auto bad = dir.write("bad.jsonl.gz", packed);
  EXPECT_HAS(input_error([&] { read_all({bad}); }), "not valid gzip data");
  const auto tail = dir.write("tail.jsonl.gz", gzipped(text) + "rubbish");
  EXPECT_HAS(input_error([&] { read_all({tail}); }), "not valid gzip data");
  const auto empty = dir.write("empty.jsonl.gz", "");
  EXPECT_HAS(input_error([&] { read_all({empty}); }), "truncated");
}

TEST(Documents, NamesFileLineAndByteOfInvalidUtf8) {
  const TestDirectory dir;
  const auto lines = dir.write("a.jsonl", "{\"text\":\"ok\"}\n{\"text\":\"a\xFF\"}\n");
  const std::string message = input_error([&] { read_all({lines}); });
  EXPECT_HAS(message, "a.jsonl:2: invalid UTF-8: byte 10 (0xff) of the line");
  EXPECT_HAS(message, "--bad-records drop");
  const auto text = dir.write("b.txt", "ab\xC3");
  EXPECT_HAS(input_error([&] { read_all({text}); }), "byte 2 (0xc3) of the file");
}

TEST(Documents, CountsBadRecordsByCauseWithTheFirstPlaces) {
  const TestDirectory dir;
  const auto file = dir.write("a.jsonl",
                              "{\"text\":\"good\"}\n"
                              "{\"text\":\"cut\n"
                              "[1]\n"
                              "{\"other\":\"x\"}\n"
                              "{\"text\":7}\n"
                              "{\"text\":\"a\",\"text\":\"b\"}\n"
                              "{\"text\":null}\n"
                              "\n"
                              "{\"text\":\"\\ud800\"}\n"
                              "{\"text\":\"a\xFF\"}\n"
                              "{\"text\":\"last\"}");
  DroppedRecords dropped;
  EXPECT_EQ(read_all({file}, BadRecords::Drop, &dropped),
            (std::vector<std::string>{"good", "last"}));
  EXPECT_EQ(dropped.total(), 9);
  EXPECT_EQ(dropped.counts[RecordProblem::InvalidJson], 2);
  EXPECT_EQ(dropped.counts[RecordProblem::NotAnObject], 1);
  EXPECT_EQ(dropped.counts[RecordProblem::FieldMissing], 1);
  EXPECT_EQ(dropped.counts[RecordProblem::FieldNotText], 1);
  EXPECT_EQ(dropped.counts[RecordProblem::FieldTwice], 1);
  EXPECT_EQ(dropped.counts[RecordProblem::Empty], 2);
  EXPECT_EQ(dropped.counts[RecordProblem::InvalidUtf8], 1);
  EXPECT_HAS(dropped.describe(), "1 not a JSON object: " + file.string() + ":3");
  EXPECT_HAS(input_error([&] { read_all({file}); }), "a.jsonl:2: invalid JSON");
}

TEST(Documents, NamesTheFieldsThatALineHasInstead) {
  const TestDirectory dir;
  const auto file = dir.write("a.jsonl", "{\"id\":1,\"content\":\"x\"}\n");
  EXPECT_HAS(input_error([&] { read_all({file}); }),
             "a.jsonl:1: field missing: 'text' (its fields: 'id', 'content'); name one "
             "of these fields, for example with --field content");
}

TEST(Documents, OnlyTheFieldsThatAreAskedForHaveToBeGood) {
  const TestDirectory dir;
  const std::string deep = std::string(900, '[') + std::string(900, ']');
  std::string lines;
  std::vector<std::string> expected;
  for (const std::string& rest :
       {std::string("123456789012345678901234567890"), std::string("-1e999"),
        std::string("\"\\ud800\""), std::string("NaN"), deep,
        std::string("{\"a\":[1e999,{\"b\":\"\\udc00\"}],\"c\":{}}")}) {
    const std::string text = "t" + std::to_string(expected.size());
    lines += "{\"x\": " + rest + ", \"text\" : \"" + text + "\\u00e9\"}\n";
    lines += "{\"text\":\"" + text + "\\u00e9\",\"labels\":" + rest + "}\n";
    expected.insert(expected.end(), 2, text + "\xC3\xA9");
  }
  EXPECT_EQ(read_all({dir.write("a.jsonl", lines)}), expected);
}

TEST(Documents, TheFieldsThatAreAskedForAreNot) {
  const TestDirectory dir;
  const auto refused = [&](const std::string& line) {
    return input_error([&] { read_all({dir.write("a.jsonl", line + "\n")}); });
  };
  const std::string big = "\"x\":1e999,";
  EXPECT_HAS(refused("{" + big + "\"text\":\"\\ud800\"}"), "invalid JSON");
  EXPECT_HAS(refused("{" + big + "\"text\":1e999}"), "invalid JSON: in 'text'");
  EXPECT_HAS(refused("{" + big + "\"text\":7}"), "not text");
  EXPECT_HAS(refused("{" + big + "\"text\":\"a\",\"text\":\"b\"}"), "twice");
  EXPECT_HAS(refused("{" + big + "\"other\":\"a\"}"), "(its fields: 'x', 'other')");
  // The labels beside ids must be valid too.
  EXPECT_HAS(refused("{\"text\":[1,2],\"labels\":[1e999,2]}"), "invalid JSON: in 'text'");
  // Text that is not JSON is refused, in whatever field it stands.
  for (const char* rest :
       {"tru", "[1,]", "{\"a\"}", "01", "1.", "\"\\x\"", "[1 2]", "]", "1e999}"}) {
    EXPECT_HAS(refused(std::string("{\"text\":\"a\",\"x\":") + rest + "}"),
               "invalid JSON");
  }
  const std::string deep = std::string(20000, '[') + std::string(20000, ']');
  EXPECT_HAS(refused("{\"text\":\"a\",\"x\":" + deep + "}"), "invalid JSON");
}

}  // namespace
}  // namespace longhaul::data
