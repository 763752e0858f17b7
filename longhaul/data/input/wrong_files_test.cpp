#include "longhaul/data/input/wrong_files.h"

#include <gtest/gtest.h>

#include "longhaul/data/input/documents.h"
#include "tests/support/inputs.h"

namespace longhaul::data {
namespace {

/// Returns the error message of reading a file with this content and name.
std::string refused(const std::string& content, const std::string& name = "x.json",
                    const std::string& field = "text") {
  const TestDirectory dir;
  const fs::path file = dir.write(name, content);
  const std::string said = input_error([&] {
    DocumentReader reader(inputs_of({file}, field));
    for (std::string text; reader.next(text);) {
    }
  });
  // The tests compare messages without the path of the test's directory.
  std::string plain;
  const std::string path = file.parent_path().string() + "/";
  for (size_t at = 0; at < said.size();) {
    const size_t found = std::min(said.find(path, at), said.size());
    plain += said.substr(at, found - at);
    at = found + path.size();
  }
  return plain;
}

constexpr const char* kArray =
    "x.json is one JSON array; one object a line is read: `jq -c '.[]' x.json > x.jsonl`";

TEST(FileForm, AnArrayIsToldWhereverItsBracketsStand) {
  const std::string many = [] {
    std::string text = "[";
    for (int i = 0; i < 9000; ++i) {
      text += (i > 0 ? ", " : "") + std::string(R"({"text": "some words"})");
    }
    return text + "]";
  }();
  for (const std::string& text : {
           std::string(R"([{"text": "a"}, {"text": "b"}])"),
           many,
           many + "\n",
           std::string("[\n  {\"text\": \"a\"},\n  {\"text\": \"b\"}\n]\n"),
           std::string("[{\"text\": \"a\"},\n{\"text\": \"b\"}]\n"),
           std::string("\xEF\xBB\xBF[{\"text\": \"a\"}]"),
           std::string("\n \r\n[{\"text\": \"a\"}]\n"),
           std::string("[\n{\"text\": \"a\"},\n]\n"),  // no JSON, and meant as an array
           std::string("[]"),
       }) {
    EXPECT_HAS(refused(text), kArray) << text.substr(0, 40);
  }
}

TEST(FileForm, TheCommandFitsThePackingAndTheName) {
  EXPECT_HAS(refused(gzipped("[{\"text\": \"a\"}]"), "x.json.gz"),
             "`gzip -dc x.json.gz | jq -c '.[]' > x.jsonl`");
  EXPECT_HAS(refused("[1]", "x.jsonl"), "`jq -c '.[]' x.jsonl > x.lines.jsonl`");
  EXPECT_HAS(refused("[1]", "a b.json"), "`jq -c '.[]' \"a b.json\" > \"a b.jsonl\"`");
}

TEST(FileForm, ObjectsOverLinesAndCommasAreTold) {
  const std::string over = "x.json holds a JSON object over several lines";
  EXPECT_HAS(refused("{\n  \"text\": \"a\"\n}\n"), over);
  EXPECT_HAS(refused("{\"data\": [\n{\"text\": \"a\"},\n{\"text\": \"b\"}]}"), over);
  EXPECT_HAS(refused("{\"a\": [\n" + std::string(100'000, ' ') + "1]}"), over);
  EXPECT_HAS(refused("{\"text\": \"a\"},\n{\"text\": \"b\"},\n{\"text\": \"c\"}\n"),
             "x.json has commas between its objects; one object a line is read, without "
             "commas: `sed 's/,[[:space:]]*$//' x.json > x.jsonl`");
  EXPECT_HAS(
      refused("\xFF\xFE{\0\"\0", "x.jsonl"),
      "begins as UTF-16 does; make UTF-8 of it: `iconv -f UTF-16 -t UTF-8 x.jsonl");
}

TEST(FileForm, ABrokenLineOfAGoodFileIsABrokenRecord) {
  for (const char* line : {"[1, 2]", "{\"text\": ", "{\"text\":", "{\"text\": \"cut",
                           "[broken", "[1, 2", "{\"text\": \"a\"} x", "nonsense"}) {
    const std::string text = std::string(line) + "\n{\"text\": \"b\"}\n";
    EXPECT_HAS(refused(text), "x.json:1: ") << line;
    EXPECT_HAS(refused("{\"text\": \"b\"}\n" + text), "x.json:2: ") << line;
    if (line[0] != '{') continue;
    EXPECT_HAS(refused(line + std::string("\n")), "x.json:1: ") << line;
  }
}

TEST(FileForm, ChatsAreToldWithWhatToDo) {
  const std::string advice =
      "; build a store of chats with --chat (longhaul docs data#chats)";
  const std::string chat = R"({"id": 1, "messages": [{"role": "user", "content": "a"}]})";
  EXPECT_EQ(refused(chat),
            "[data] x.json:1: chat: records are chats ('messages')" + advice);
  EXPECT_HAS(refused(chat, "x.jsonl", "messages"), "chats ('messages')" + advice);
  EXPECT_HAS(refused(R"({"conversations": [{"from": "human", "value": "a"}]})"),
             "chats ('conversations')" + advice);
}

TEST(FileForm, AListOfRecordsInsideAnObjectIsTold) {
  EXPECT_HAS(refused(R"({"data": [{"text": "a"}, {"text": "b"}]})"),
             "'data' is a list of objects: write each of them as a line of its own, for "
             "example with `jq -c '.\"data\"[]'`");
  EXPECT_HAS(refused(R"({"text": [{"text": "a"}]})"), "'text' is a list of objects");
  // A list of texts is no document, so that its field is not offered.
  EXPECT_HAS(refused(R"({"body": "a", "tags": ["x", "y"]})"), "with --field body");
}

TEST(FileForm, MarksAndHalvesOfCharactersAreTold) {
  const std::string mark = "\xEF\xBB\xBF";
  EXPECT_HAS(
      refused("{\"text\": \"a\"}\n" + mark + "{\"text\": \"b\"}\n"),
      "x.json:2: invalid JSON: a byte order mark stands before the object, as where "
      "files were joined");
  EXPECT_HAS(refused("text,b\na,1\n" + mark + "\"x,y\",2\n", "x.csv"),
             "the row begins with a byte order mark");
  EXPECT_HAS(refused(R"({"text": "a \ud800 b"})"), "half of a surrogate pair (\\ud800");
}

TEST(FileForm, TextInAnotherEncodingIsTold) {
  const std::string advice =
      "if it is text in another encoding, make UTF-8 of it, for example with `iconv -f "
      "LATIN1 -t UTF-8`";
  EXPECT_HAS(refused("caf\xE9", "x.txt"), advice);
  EXPECT_HAS(refused("{\"text\": \"caf\xE9\"}\n"), advice);
  EXPECT_HAS(refused("text\ncaf\xE9\n", "x.csv"), advice);
}

}  // namespace
}  // namespace longhaul::data
