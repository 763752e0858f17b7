#include "longhaul/base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <limits>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

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
  EXPECT_HAS(refusal(R"({"a": 1234567890123456789012, "b": })"),
             "not valid JSON at byte 36");
  for (const char* wrong :
       {"[nan]", "[-NaN]", "[infinity]", "[+Infinity]", "[NaN1]", "{NaN: 1}", "[01e999]",
        "[1.e999]", "[01234567890123456789012]", "[Infinity NaN]"}) {
    EXPECT_HAS(refusal(wrong), "not valid JSON") << wrong;
  }
}

// Python's json module writes such numbers, which parse_json has to keep as texts.
constexpr const char* kOddNumbers =
    R"({"a":NaN,"b":[1,-Infinity,{"NaN":"NaN \" 1e999, "}],"c":Infinity,)"
    R"("d":123456789012345678901234567890,"e":-9223372036854775809,"f":[1e999,2.5],)"
    R"("g":18446744073709551615,"h":-9223372036854775808,"i":{},"j":[],"k":"é"})";

TEST(Json, NumbersThatFitNowhereAreOfNoTypeAndStayAsTheyStood) {
  const Json json = parse_json(kOddNumbers, "a.json");
  for (const char* odd : {"a", "c", "d", "e"}) {
    EXPECT_FALSE(json[odd].is_number()) << odd;
    EXPECT_FALSE(json[odd].is_string()) << odd;
    EXPECT_FALSE(json[odd].is_structured()) << odd;
  }
  EXPECT_EQ(json["b"][0], 1);
  EXPECT_FALSE(json["b"][1].is_number());
  EXPECT_EQ(json["b"][2]["NaN"], "NaN \" 1e999, ");
  EXPECT_FALSE(json["f"][0].is_number());
  EXPECT_EQ(json["f"][1], 2.5);
  EXPECT_EQ(json["g"], UINT64_MAX);
  EXPECT_EQ(json["h"], INT64_MIN);
  EXPECT_EQ(json_text(json), kOddNumbers);
  EXPECT_EQ(json_text(parse_ordered_json(kOddNumbers, "a.json")), kOddNumbers);
}

TEST(Json, ManyDigitsMakeANumberTooLargeWhoseExponentIsSmall) {
  for (const size_t digits : {200, 250}) {
    const std::string text = "[" + std::string(digits, '9') + "e99]";
    const Json json = parse_json(text, "a.json");
    EXPECT_EQ(json[0].is_number(), digits == 200);
    EXPECT_EQ(json_text(json), digits == 200 ? json.dump() : text);
  }
}

TEST(Json, TextAroundANumberThatFitsNowhereIsAsDumpWritesIt) {
  const Json odd = parse_json(R"({"b":[1,NaN,{"k\"":"x\n"},[]],"a":{}})", "a.json");
  Json plain = odd;
  plain["b"][1] = 0;
  for (const int indent : {-1, 0, 2}) {
    std::string expected = plain.dump(indent);
    const size_t zero = expected.find('0');
    EXPECT_EQ(json_text(odd, indent), expected.replace(zero, 1, "NaN"));
  }
}

TEST(Json, TextIsAsDumpWritesIt) {
  const Json json = parse_json(
      R"({"b": [1, -2.5e-7, [], {}, [{"x": null}], true], "a": {"q\"": "\n"}})", "x");
  EXPECT_EQ(json_text(json), json.dump());
  EXPECT_EQ(json_text(json, 2), json.dump(2));
}

TEST(Json, AKeyMayStandOncePerObjectOnly) {
  EXPECT_HAS(refusal(R"({"a": 1, "b": {"c": 1, "c": 2}})"), "the key \"c\" stands twice");
  EXPECT_NO_THROW(parse_json(R"([{"a": 1}, {"a": {"a": 2}}])", "a.json"));
}

/// Returns the least processor time of five parses of a text, in clock ticks.
template <typename Parse>
double least_time(const std::string& text, const Parse& parse) {
  double least = 0.0;
  for (int i = 0; i < 5; ++i) {
    const std::clock_t begin = std::clock();
    parse(text, "a.json", 64);
    const auto took = static_cast<double>(std::clock() - begin);
    least = i == 0 ? took : std::min(least, took);
  }
  return least;
}

/// Returns a text with `count` members, each of which has another name.
std::string members(int count, const char* open, const char* member, const char* close) {
  std::string text = open;
  for (int i = 0; i < count; ++i) {
    text += (i > 0 ? "," : "") + fmt::format(fmt::runtime(member), i);
  }
  return text + close;
}

// An object with 16 times as many members takes about 16 times as long to parse. It would
// take 256 times as long if each member were compared with all others.
TEST(Json, TheTimeGrowsAsTheNumberOfMembers) {
  constexpr int kFew = 500;
  constexpr int kMore = 16;
  const auto compare = [](const char* what, const auto& parse, const auto&... form) {
    const double few = least_time(members(kFew, form...), parse);
    const double many = least_time(members(kMore * kFew, form...), parse);
    EXPECT_LT(many, 4.0 * kMore * few) << what;
  };
  const auto both = [&](const char* what, const auto&... form) {
    compare(what, parse_json, form...);
    compare(what, parse_ordered_json, form...);
  };
  both("objects in an object", "{", "\"t{}\":{{\"a\":[1,2],\"b\":\"x\"}}", "}");
  both("objects in a list", "[", "{{\"id\":{},\"b\":null}}", "]");
  both("lists in an object", "{", "\"t{}\":[1]", "}");
  both("lists in a list", "[", "[{}]", "]");
  both("numbers in an object", "{", "\"t{0}\":{0}", "}");
  both("odd numbers", "[", "1e999,{}", "]");
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
