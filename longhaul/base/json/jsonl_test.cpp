#include "longhaul/base/json/jsonl.h"

#include <limits>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul {
namespace {

TEST(JsonLines, EachLineIsInTheFileWhenTheCallReturns) {
  const TestDirectory dir;
  JsonLines out(dir / "m.jsonl");
  out.append({{"step", 1}, {"loss", 1.5}});
  EXPECT_EQ(read_text(dir / "m.jsonl"), "{\"loss\":1.5,\"step\":1}\n");
  out.append({{"name", "two\nlines"}});
  EXPECT_EQ(read_text(dir / "m.jsonl"),
            "{\"loss\":1.5,\"step\":1}\n{\"name\":\"two\\nlines\"}\n");
  EXPECT_EQ(out.repaired(), 0U);
}

TEST(JsonLines, ATornLastLineIsCutOffAndReported) {
  const TestDirectory dir;
  write_file(dir / "m.jsonl", "{\"step\":1}\n{\"step\":2,\"lo");
  JsonLines out(dir / "m.jsonl");
  EXPECT_EQ(out.repaired(), 13U);
  out.append({{"step", 2}});
  EXPECT_EQ(read_text(dir / "m.jsonl"), "{\"step\":1}\n{\"step\":2}\n");
}

TEST(JsonLines, AFileThatIsOneTornLineIsEmptied) {
  const TestDirectory dir;
  write_file(dir / "m.jsonl", "{\"st");
  EXPECT_EQ(JsonLines(dir / "m.jsonl").repaired(), 4U);
  EXPECT_EQ(read_text(dir / "m.jsonl"), "");
}

TEST(JsonLines, ALongTornLineIsCutOffAtTheNewlineBeforeIt) {
  const TestDirectory dir;
  for (const size_t torn : {4095, 4096, 4097, 20'000}) {
    const std::string whole = "{\"step\":1}\n";
    write_file(dir / "m.jsonl", whole + std::string(torn, 'x'));
    EXPECT_EQ(JsonLines(dir / "m.jsonl").repaired(), torn);
    EXPECT_EQ(read_text(dir / "m.jsonl"), whole);
  }
}

TEST(JsonLines, WholeLinesOfAnEarlierStartStay) {
  const TestDirectory dir;
  JsonLines(dir / "m.jsonl").append({{"step", 1}});
  JsonLines again(dir / "m.jsonl");
  again.append({{"step", 2}});
  EXPECT_EQ(again.repaired(), 0U);
  EXPECT_EQ(read_text(dir / "m.jsonl"), "{\"step\":1}\n{\"step\":2}\n");
}

TEST(JsonLines, NoValueAndNoTextMakesALineUnreadable) {
  const TestDirectory dir;
  JsonLines out(dir / "m.jsonl");
  out.append({{"loss", std::numeric_limits<double>::quiet_NaN()}, {"path", "a\xff/b"}});
  EXPECT_EQ(read_text(dir / "m.jsonl"), "{\"loss\":null,\"path\":\"a\xEF\xBF\xBD/b\"}\n");
}

TEST(JsonLines, APlaceThatCannotBeWrittenIsNamed) {
  EXPECT_HAS(message_of<InputError>([] { JsonLines("/nonexistent/m.jsonl"); }),
             "/nonexistent/m.jsonl: open failed");
}

}  // namespace
}  // namespace longhaul
