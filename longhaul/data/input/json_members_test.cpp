#include "longhaul/data/input/json_members.h"

#include <gtest/gtest.h>

#include <string>

namespace longhaul::data {
namespace {

std::string split(std::string_view text) {
  const auto members = split_members(text);
  if (!members) return "none";
  std::string out;
  for (const RawMember& member : *members) {
    out += std::string(member.key) + "=" + std::string(member.value) + ";";
  }
  return out;
}

TEST(JsonMembers, ComeAsTheyStandInTheText) {
  EXPECT_EQ(split(R"( { "a" : 1 ,"b":[ {"c":[]} , -0.5e+9], "d":"\\\"}" } )"),
            R"("a"=1;"b"=[ {"c":[]} , -0.5e+9];"d"="\\\"}";)");
  EXPECT_EQ(split("{}"), "");
  EXPECT_EQ(split("{\"a\":{},\"b\":-Infinity}"), "\"a\"={};\"b\"=-Infinity;");
}

TEST(JsonMembers, AreNoneOfWhatIsNoObject) {
  for (const char* text : {"",
                           "{",
                           "}",
                           "[]",
                           "1",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{,}",
                           "{\"a\":1}}",
                           "{\"a\":1} 2",
                           "{'a':1}",
                           "{\"a\":\"\n\"}",
                           "{\"a\":\"\\u12g4\"}",
                           "{\"a\":\"\\",
                           "{\"a\":-}",
                           "{\"a\":+1}",
                           "{\"a\":.5}",
                           "{\"a\":00}",
                           "{\"a\":1e}",
                           "{\"a\":[1}",
                           "{\"a\":{]}",
                           "{\"a\":nul}",
                           "{\"a\":[,1]}",
                           "{\"a\":{\"b\":1,}}"}) {
    EXPECT_EQ(split(text), "none") << text;
  }
}

TEST(JsonMembers, DepthTakesNoStackAndHasALimit) {
  const auto nested = [](size_t depth) {
    return "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_NE(split(nested(10'000)), "none");
  EXPECT_EQ(split(nested(10'002)), "none");
  EXPECT_EQ(split("{\"a\":" + std::string(5'000'000, '[')), "none");
}

}  // namespace
}  // namespace longhaul::data
