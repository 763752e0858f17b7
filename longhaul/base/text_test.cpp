#include "longhaul/base/text.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"

namespace longhaul {
namespace {

TEST(NearestName, OffersWhatWasMeantAndNothingElse) {
  const std::vector<std::string> names = {"seq_len", "shuffle", "train", "validation"};
  EXPECT_EQ(nearest_name("seq_length", names), "seq_len");
  EXPECT_EQ(nearest_name("trian", names), "train");
  EXPECT_EQ(nearest_name("optimizer", names), std::nullopt);
  // A name that is too far from every key has no nearest name.
  const std::vector<std::string> keys = {"log", "eps", "fp32", "save_steps", "weights"};
  EXPECT_EQ(nearest_name("wieghts", keys), "weights");
  for (const char* other : {"lora", "gpus", "fp16", "foo", "load_steps", "lr", "x"}) {
    EXPECT_EQ(nearest_name(other, keys), std::nullopt) << other;
  }
  EXPECT_EQ(nearest_name("x", {}), std::nullopt);
}

TEST(HumanBytes, UsesPowersOfThousand) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1.0 kB");
  EXPECT_EQ(human_bytes(846.6e9), "846.6 GB");
  EXPECT_EQ(human_bytes(5e18), "5000.0 PB");
}

TEST(HumanDuration, ShowsTwoUnits) {
  EXPECT_EQ(human_duration(-1), "0 s");
  EXPECT_EQ(human_duration(12.4), "12 s");
  EXPECT_EQ(human_duration(59.6), "1m 00s");
  EXPECT_EQ(human_duration(200), "3m 20s");
  EXPECT_EQ(human_duration(3720), "1h 02m");
  EXPECT_EQ(human_duration(90000), "1d 01h");
}

TEST(Grouped, SetsCommas) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1359146), "1,359,146");
  EXPECT_EQ(grouped(-1000), "-1,000");
  EXPECT_EQ(grouped(INT64_MAX), "9,223,372,036,854,775,807");
  EXPECT_EQ(grouped(INT64_MIN), "-9,223,372,036,854,775,808");
}

TEST(Counted, OneIsSingularAndAllElsePlural) {
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(2, "rank"), "2 ranks");
  EXPECT_EQ(counted(1359146, "token"), "1,359,146 tokens");
  EXPECT_EQ(counted(1, "directory", "directories"), "1 directory");
  EXPECT_EQ(counted(3, "directory", "directories"), "3 directories");
}

TEST(Listed, NamesPastTheMostAreCounted) {
  const std::vector<std::string> names = {"a", "b", "c"};
  EXPECT_EQ(listed(names, 3), "a, b, c");
  EXPECT_EQ(listed(names, 2), "a, b and 1 more");
  EXPECT_EQ(listed({}, 2), "");
}

TEST(GlobMatch, CoversTheWholeName) {
  EXPECT_TRUE(glob_match("*norm*", "model.norm.weight"));
  EXPECT_TRUE(glob_match("*.bias", "q_proj.bias"));
  EXPECT_FALSE(glob_match("*.bias", "q_proj.bias.x"));
  EXPECT_TRUE(glob_match("layers.?.*", "layers.3.mlp"));
  EXPECT_FALSE(glob_match("layers.?.*", "layers.13.mlp"));
  EXPECT_TRUE(glob_match("a*b*c", "a-b-b-c"));
  EXPECT_FALSE(glob_match("a*b*c", "a-c-b"));
  EXPECT_TRUE(glob_match("", ""));
  EXPECT_FALSE(glob_match("", "a"));
  EXPECT_TRUE(glob_match("**", ""));
}

TEST(CountCodePoints, CountsCharactersOfEveryLength) {
  EXPECT_EQ(count_code_points(""), 0);
  EXPECT_EQ(count_code_points("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z"), 5);
}

TEST(FindInvalidUtf8, AcceptsTheEdgesOfEveryLength) {
  for (const char* good :
       {"", "abc", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
        "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(find_invalid_utf8(good), std::nullopt) << good;
  }
}

TEST(FindInvalidUtf8, SaysWhereTheFirstBadSequenceBegins) {
  const std::string prefix = "ab";
  for (const char* bad : {"\x80",                          // a tail alone
                          "\xC0\xAF", "\xC1\xBF",          // two bytes for one
                          "\xE0\x9F\xBF",                  // three bytes for two
                          "\xED\xA0\x80",                  // a surrogate
                          "\xF0\x8F\xBF\xBF",              // four bytes for three
                          "\xF4\x90\x80\x80", "\xF5\x80",  // above U+10FFFF
                          "\xC3", "\xE2\x82", "\xF0\x9F\x98", "\xE2\x28\xA1", "\xFF"}) {
    EXPECT_EQ(find_invalid_utf8(prefix + bad), prefix.size()) << bad;
  }
}

TEST(ParseByteSize, SizesAreReadAsPeopleWriteThem) {
  EXPECT_EQ(parse_byte_size("5GB"), 5'000'000'000U);
  EXPECT_EQ(parse_byte_size("500mb"), 500'000'000U);
  EXPECT_EQ(parse_byte_size("2GiB"), 2147483648U);
  EXPECT_EQ(parse_byte_size("1TiB"), 1099511627776U);
  EXPECT_EQ(parse_byte_size("1.5 KB"), 1500U);
  EXPECT_EQ(parse_byte_size("1000000"), 1'000'000U);
  for (const char* text : {"", "GB", "-1GB", "0", "5XB", "1e99", "nan"}) {
    EXPECT_THROW(parse_byte_size(text), InputError) << text;
  }
}

TEST(ParseByteSize, ASizeWithTwoReadingsIsRefusedWithBoth) {
  try {
    parse_byte_size("8G");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "[argument] '8G' may be 8GB (powers of 1000) or 8GiB (powers of 1024); "
                 "write which");
  }
  EXPECT_THROW(parse_byte_size("1.5m"), InputError);
}

TEST(ParseByteSize, ASmallNumberWithoutAUnitIsRefusedWithTheUnitsThatMayBeMeant) {
  for (const char* text : {"5", "500", "999999"}) {
    EXPECT_THROW(parse_byte_size(text), InputError) << text;
  }
  EXPECT_EQ(parse_byte_size("5B"), 5U);
  try {
    parse_byte_size("5");
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "[argument] '5' has no unit, and 5 bytes are hardly meant; write 5GB, "
                 "5MB or 5B");
  }
}

TEST(Text, LinesAreWithoutTheirEndsAndTheLastMayLackIt) {
  using Lines = std::vector<std::string_view>;
  EXPECT_EQ(lines_of("a\n\nb\n"), (Lines{"a", "", "b"}));
  EXPECT_EQ(lines_of("a\nb"), (Lines{"a", "b"}));
  EXPECT_EQ(lines_of(""), Lines{});
}

TEST(Text, BlanksAreTakenFromTheEndsOnly) {
  EXPECT_EQ(trimmed(" \ta b\r\n"), "a b");
  EXPECT_EQ(trimmed(" \f\v"), "");
  EXPECT_EQ(trimmed(" a\n", " "), "a\n");
}

TEST(Text, ANameKeepsLettersDigitsAndPlainSigns) {
  EXPECT_EQ(plain_characters("wiki-val_2.a"), "wiki-val_2.a");
  EXPECT_EQ(plain_characters("a b/\xc3\xa4:"), "a_b____");
}

}  // namespace
}  // namespace longhaul
