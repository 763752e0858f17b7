#include <gtest/gtest.h>

#include "tests/support/inputs.h"

namespace longhaul::data {
namespace {

Records read_csv(const TestDirectory& dir, const std::string& name,
                 const std::string& content, bool with_place = false) {
  return read_records(inputs_of({dir.write(name, content)}), uint64_t{1} << 40, nullptr,
                      with_place);
}

TEST(Csv, ReadsQuotesSeparatorsAndLineEndsInsideThem) {
  const TestDirectory dir;
  const std::string content =
      "id,text,note\r\n"
      "1,plain,x\r\n"
      "2,\"a, \"\"b\"\",\r\nc\",\"\"\r\n"
      "3,\"\"\"\",x\n"
      "4,in\"side,x\n"
      "5, \"spaced\" ,x\n"
      "6,,x\n"
      "7,\"\",x\n"
      "\n"
      "8,last,";
  EXPECT_EQ(read_csv(dir, "a.csv", content),
            (Records{"plain", "a, \"b\",\r\nc", "\"", "in\"side", " \"spaced\" ",
                     "!empty", "!empty", "!empty", "last"}));
  EXPECT_EQ(read_csv(dir, "b.csv.gz", gzipped(content)), read_csv(dir, "a.csv", content));
}

TEST(Csv, KnowsLineAndByteOfARow) {
  const TestDirectory dir;
  EXPECT_EQ(read_csv(dir, "a.csv", "text,n\n\"a\nb\n\",1\nc,2\r\nd,3\n", true),
            (Records{"a\nb\n@2+7", "c@5+16", "d@6+21"}));
}

TEST(Csv, CountsRowsThatAreBroken) {
  const TestDirectory dir;
  EXPECT_EQ(
      read_csv(dir, "a.csv",
               "text,n\ngood,1\none\na,b,c\n\"x\"y,1\n\"x\"y\",\nz\",1\n\xFF,1\nend,2"),
      (Records{"good", "!wrong number of fields: 1, but the header has 2",
               "!wrong number of fields: 3, but the header has 2",
               "!text after a closing quote: in field 1",
               "!text after a closing quote: in field 1", "z\"",
               "!invalid UTF-8: byte 0 (0xff) of the row", "end"}));
}

TEST(Csv, RefusesAQuoteThatIsNeverClosed) {
  const TestDirectory dir;
  const std::string message =
      input_error([&] { read_csv(dir, "a.csv", "text,n\na,1\nb,\"2\nc,3\nd,4\n"); });
  EXPECT_HAS(message, "a.csv: a quoted field that is never closed");
  EXPECT_HAS(message, "byte 13 of the text, in the row that begins on line 3");
}

TEST(Csv, TakesTheColumnThatTheHeaderNames) {
  const TestDirectory dir;
  EXPECT_EQ(read_csv(dir, "a.csv", "\xEF\xBB\xBFtext\nx\n"), (Records{"x"}));
  EXPECT_EQ(read_csv(dir, "a.csv", "\"text\",\"te\"\"xt\"\nx,y\n"), (Records{"x"}));
  EXPECT_HAS(input_error([&] { read_csv(dir, "a.csv", "id,body\n1,x\n"); }),
             "a.csv: no column 'text' in the header row (its columns: 'id', 'body'); "
             "name one of these fields with --field");
  EXPECT_HAS(input_error([&] { read_csv(dir, "b.csv", "id,test\n1,x\n"); }),
             "; name one of these fields, for example with --field test");
  EXPECT_HAS(input_error([&] { read_csv(dir, "a.csv", "text,text\n1,x\n"); }),
             "more than one column 'text'");
  EXPECT_HAS(input_error([&] { read_csv(dir, "a.csv", ""); }), "no header row");
  EXPECT_EQ(read_csv(dir, "a.csv", "text"), Records{});
}

TEST(Csv, SeparatesByTabsAndOtherBytes) {
  const TestDirectory dir;
  EXPECT_EQ(read_csv(dir, "a.tsv", "id\ttext\n1\ta, b\n"), (Records{"a, b"}));
  InputOptions options = inputs_of({dir.write("a.csv", "id;text\n1;a, b\n")});
  options.delimiter = ';';
  EXPECT_EQ(read_records(options), (Records{"a, b"}));
  options.delimiter = '"';
  EXPECT_HAS(input_error([&] { InputSet inputs(options); }), "cannot separate fields");
}

TEST(Csv, EndsRowsAtReturnsAcrossTheEdgesOfItsBuffers) {
  const TestDirectory dir;
  for (const std::string end : {"\n", "\r\n", "\r"}) {
    std::string content = "text,n" + end;
    Records expected;
    for (size_t i = 0; i < 40; ++i) {
      expected.push_back(std::string(6000 + i * 997, static_cast<char>('a' + i % 26)) +
                         (i % 3 == 0 ? "\"," : "") + std::string(i, 'z'));
      std::string field = expected.back();
      for (size_t at = field.find('"'); at != std::string::npos;
           at = field.find('"', at + 2)) {
        field.insert(at, 1, '"');
      }
      content.append("\"").append(field).append("\",1").append(end);
    }
    EXPECT_EQ(read_csv(dir, "a.csv", content), expected);
    EXPECT_EQ(read_csv(dir, "a.csv.zst", zstd_packed(content)), expected);
  }
}

TEST(Csv, EndsAllRowsAsItsHeaderRowEnds) {
  const TestDirectory dir;
  EXPECT_EQ(read_csv(dir, "a.csv", "text,n\na\rb,1\nc,2\r\n\"d\",3\r\n4,\"e\"\r"),
            (Records{"a\rb", "c", "d", "4"}));
  EXPECT_EQ(read_csv(dir, "a.csv", "text,n\r\na\rb,1\r\nc,2\n"), (Records{"a\rb", "c"}));
  EXPECT_EQ(read_csv(dir, "a.csv", "text,n\ra\nb,1\rc,2\r"), (Records{"a\nb", "c"}));
}

TEST(Csv, SkipsRowsAboveTheLimit) {
  const TestDirectory dir;
  InputOptions options = inputs_of({dir.write(
      "a.csv", "text,n\na,1\n\"" + std::string(1 << 20, '\n') + "\",2\nb,3\n")});
  options.max_record_bytes = 1000;
  EXPECT_EQ(read_records(options),
            (Records{"a", "!too long: more than 1.0 kB; split it into documents", "b"}));
}

}  // namespace
}  // namespace longhaul::data
