#include "longhaul/base/json.h"

#include <limits>

#include "longhaul/base/error.h"
#include "longhaul/base/test_files.h"

namespace longhaul {
namespace {

std::string refusal(std::string_view text, int max_depth = 64) {
  return message_of<InputError>([&] { parse_json(text, "a.json", max_depth); });
}

TEST(Json, ReadsAFileAndKeepsItsOrderWhereAsked) {
  const TestDirectory dir;
  write_file(dir / "a.json", R"({"b": 1, "a": [true, null, 2.5, "x"]})");
  const Json json = read_json(dir / "a.json");
  EXPECT_EQ(json["b"], 1);
  EXPECT_EQ(json["a"][2], 2.5);
  EXPECT_EQ(parse_ordered_json(R"({"b":1,"a":2})", "x").dump(), R"({"b":1,"a":2})");
}

TEST(Json, BrokenTextIsRefusedWithFileAndByte) {
  EXPECT_HAS(refusal(R"({"a": })"), "a.json: not valid JSON at byte 7");
  EXPECT_HAS(refusal(""), "a.json: not valid JSON");
  EXPECT_HAS(refusal(R"({"a": 1} x)"), "not valid JSON at byte 10");
  EXPECT_HAS(refusal("\"\xff\""), "not valid JSON");
  EXPECT_HAS(refusal("1e999"), "not valid JSON");
}

TEST(Json, AKeyMayStandOncePerObjectOnly) {
  EXPECT_HAS(refusal(R"({"a": 1, "b": {"c": 1, "c": 2}})"), "the key \"c\" stands twice");
  EXPECT_NO_THROW(parse_json(R"([{"a": 1}, {"a": {"a": 2}}])", "a.json"));
}

TEST(Json, NestingHasALimit) {
  EXPECT_NO_THROW(parse_json("[[[]]]", "a.json", 3));
  EXPECT_HAS(refusal("[[[[[]]]]]", 3), "nested deeper than 3 levels");
  EXPECT_HAS(refusal(std::string(1000000, '[')), "nested deeper than 64 levels");
}

TEST(JsonText, WhatJsonCannotHoldDoesNotMakeItThrow) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(json_text(Json{{"path", "runs/\xFFx"}, {"loss", nan}}),
            "{\"loss\":null,\"path\":\"runs/\xEF\xBF\xBDx\"}");
  EXPECT_EQ(json_text(OrderedJson{{"b", 1}, {"a", 2}}, 1), "{\n \"b\": 1,\n \"a\": 2\n}");
}

TEST(WordsOf, LeaveOutTheLibrarysNames) {
  try {
    Json("text").get<int>();
    FAIL();
  } catch (const Json::exception& problem) {
    EXPECT_EQ(words_of(problem), "type must be number, but is string");
  }
}

}  // namespace
}  // namespace longhaul
