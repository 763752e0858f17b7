#include "longhaul/base/json/json_fields.h"

#include <gtest/gtest.h>

#include "longhaul/base/json/lenient_json.h"
#include "tests/support/scratch_directory.h"

namespace longhaul {
namespace {

const Json kObject = {{"text", "a"},        {"flag", true},    {"small", 7},
                      {"negative", -3},     {"half", 1.5},     {"large", UINT64_MAX},
                      {"list", {1, 2}},     {"shape", {2, 3}}, {"odd", {2, -3}},
                      {"inner", {{"x", 1}}}};

JsonFields fields() { return {kObject, "data", "store.json", "build it again"}; }

TEST(JsonFields, ValuesComeAsTheyAreAsked) {
  EXPECT_EQ(fields().get<std::string>("text"), "a");
  EXPECT_TRUE(fields().get<bool>("flag"));
  EXPECT_EQ(fields().get<int>("negative"), -3);
  EXPECT_EQ(fields().get<uint64_t>("large"), UINT64_MAX);
  EXPECT_EQ(fields().get<double>("half"), 1.5);
  EXPECT_EQ(fields().count("small"), 7);
  EXPECT_EQ(fields().list("list", 2).size(), 2U);
  EXPECT_EQ(fields().shape("shape"), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(fields().inside(fields().field("inner")).get<int>("x"), 1);
  EXPECT_TRUE(fields().has("text"));
  EXPECT_FALSE(fields().has("other"));
}

TEST(JsonFields, AMessageNamesFileFieldValueAndWhatToDo) {
  EXPECT_EQ(message_of<InputError>([] { fields().count("half"); }),
            "[data] store.json: the field 'half' is 1.5, not a whole number of that "
            "size; build it again");
  EXPECT_EQ(message_of<InputError>([] { fields().get<int>("other"); }),
            "[data] store.json: the field 'other' is missing; build it again");
  const Json list = {1};
  EXPECT_EQ(message_of<InputError>([&] { JsonFields(list, "a", "f"); }),
            "[a] f: an object was expected");
}

TEST(JsonFields, ANumberThatFitsNowhereIsRefusedWhereItIsRead) {
  const Json object = parse_json(R"({"a": NaN, "b": 99999999999999999999, "c": 1})", "f");
  const JsonFields fields(object, "data", "store.json");
  EXPECT_EQ(fields.count("c"), 1);
  EXPECT_EQ(message_of<InputError>([&] { fields.get<double>("a"); }),
            "[data] store.json: the field 'a' is NaN, not of the type that is expected");
  EXPECT_EQ(message_of<InputError>([&] { fields.count("b"); }),
            "[data] store.json: the field 'b' is 99999999999999999999, not a whole "
            "number of that size");
}

TEST(JsonFields, OtherTypesAndRangesAreRefused) {
  EXPECT_THROW(fields().get<int64_t>("half"), InputError);
  EXPECT_THROW(fields().get<int64_t>("flag"), InputError);
  EXPECT_THROW(fields().get<int64_t>("text"), InputError);
  EXPECT_THROW(fields().get<int64_t>("large"), InputError);
  EXPECT_THROW(fields().get<uint64_t>("negative"), InputError);
  EXPECT_THROW(fields().get<std::string>("small"), InputError);
  EXPECT_THROW(fields().get<bool>("small"), InputError);
  EXPECT_THROW(fields().count("negative"), InputError);
  EXPECT_THROW(fields().count("large"), InputError);
  EXPECT_THROW(fields().list("inner"), InputError);
  EXPECT_THROW(fields().list("list", 1), InputError);
  EXPECT_THROW(fields().shape("odd"), InputError);
  EXPECT_THROW(fields().shape("text"), InputError);
}

TEST(LenientJson, WhatIsAbsentOrOfAnotherTypeHasTheDefault) {
  const Json json =
      Json::parse(R"({"text": "a", "number": 2.5, "list": [1, {"a": 1}, "b"]})");
  EXPECT_EQ(text_at(json, "text"), "a");
  EXPECT_EQ(text_at(json, "number", "none"), "none");
  EXPECT_EQ(text_at(json, "absent"), "");
  EXPECT_EQ(number_at(json, "number"), 2.5);
  EXPECT_EQ(number_at(json, "text", -1.0), -1.0);
  EXPECT_EQ(integer_at(json, "absent", 7), 7);
  ASSERT_EQ(objects_in(json["list"]).size(), 1U);
  EXPECT_EQ(*objects_in(json["list"])[0], json["list"][1]);
  EXPECT_TRUE(objects_in(json["text"]).empty());
  EXPECT_TRUE(or_null(std::optional<int>()).is_null());
  EXPECT_EQ(or_null(std::optional(3)), Json(3));
}

}  // namespace
}  // namespace longhaul
