#include "longhaul/objects/address.h"

#include <gtest/gtest.h>

#include <string>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::objects {
namespace {

std::string problem_of(const std::string& text) {
  try {
    parse_address(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

TEST(Address, AnAddressHasABucketAndAKeyAndIsWrittenAsItWasRead) {
  const Address address = parse_address("s3://my-data/corpus/a b.jsonl.gz");
  EXPECT_EQ(address.bucket, "my-data");
  EXPECT_EQ(address.key, "corpus/a b.jsonl.gz");
  EXPECT_EQ(address.text(), "s3://my-data/corpus/a b.jsonl.gz");
  for (const char* text : {"s3://my-data/corpus/", "s3://my-data/corpus///"}) {
    EXPECT_EQ(parse_address(text).key, "corpus") << text;
  }
  EXPECT_EQ(parse_address("s3://my-data//").key, "");
  EXPECT_EQ(parse_address("s3://my-data").key, "");
  EXPECT_EQ((parse_address("s3://my-data") / "x").text(), "s3://my-data/x");
  EXPECT_EQ((address / "x").key, "corpus/a b.jsonl.gz/x");
}

TEST(Address, WhatAPatternFindsItsAddressNames) {
  EXPECT_EQ(parse_address("s3://bucket/a\tb\n.txt").key, "a\tb\n.txt");
}

TEST(Address, APathThatFsPathHasNormalisedIsTheSameAddress) {
  const fs::path joined = fs::path("s3://bucket/run").lexically_normal();
  EXPECT_EQ(joined.string(), "s3:/bucket/run");
  EXPECT_TRUE(is_address(joined));
  EXPECT_EQ(parse_address(joined), parse_address("s3://bucket/run"));
  EXPECT_EQ(parse_address(fs::path("s3://bucket/run") / "x").text(), "s3://bucket/run/x");
}

TEST(Address, PathsAndAddressesOfOtherKindsAreNone) {
  for (const char* text : {"data/x", "/data/s3://x", "gs://bucket/x", "s3:bucket/x",
                           "https://s3.amazonaws.com/x", "S3://bucket/x", ""}) {
    EXPECT_FALSE(is_address(text)) << text;
  }
  EXPECT_HAS(problem_of("gs://bucket/x"), "is no address; write s3://BUCKET/KEY");
}

TEST(Address, WhatNoStoreAllowsIsRefusedWithTheReason) {
  EXPECT_HAS(problem_of("s3://"), "no name of a bucket");
  EXPECT_HAS(problem_of("s3:///key"), "no name of a bucket");
  EXPECT_HAS(problem_of("s3://a b/key"), "'a b' is no name of a bucket");
  EXPECT_HAS(problem_of("s3://../key"), "no name of a bucket");
  EXPECT_HAS(problem_of("s3://bucket/a//b"), "empty, \".\" or \"..\"");
  EXPECT_HAS(problem_of("s3://bucket/../b"), "empty, \".\" or \"..\"");
  EXPECT_HAS(problem_of("s3://bucket/a/."), "empty, \".\" or \"..\"");
  EXPECT_HAS(problem_of("s3://bucket/\xff"), "no UTF-8");
  EXPECT_HAS(problem_of("s3://bucket/" + std::string(1025, 'k')), "1025 bytes");
}

TEST(Address, APatternIsReadAsItStands) {
  const Address pattern = parse_pattern("s3://bucket/year=2024/part-?[0-9]*.jsonl//");
  EXPECT_EQ(pattern.text(), "s3://bucket/year=2024/part-?[0-9]*.jsonl");
  EXPECT_EQ(parse_pattern("s3://bucket/202?/day=1/*.parquet").key,
            "202?/day=1/*.parquet");
  EXPECT_EQ(parse_pattern("s3://bucket/a").key, "a");
  const auto problem = [](const char* text) {
    return message_of<InputError>([&] { (void)parse_pattern(text); });
  };
  EXPECT_HAS(problem("s3://bucket/a?secret_key=SECRET"),
             "s3://bucket/a: an address holds");
  EXPECT_HAS(problem("s3://bucket/202?/a?secret_key=SECRET"),
             "s3://bucket/202?/a: an address holds");
  EXPECT_HAS(problem("s3://buc?et/a"), "'buc?et' is no name of a bucket");
  EXPECT_HAS(problem("s3://bucket/a//?"), "empty, \".\" or \"..\"");
}

TEST(Address, AKeyIsAPathWhereItsPartsAreNames) {
  for (const char* key : {"a", "a/b", ".a/b..", "a b/..."})
    EXPECT_TRUE(is_path(key)) << key;
  for (const char* key : {"", "/a", "a//b", "a/", "./a", "a/../b", ".."}) {
    EXPECT_FALSE(is_path(key)) << key;
  }
}

TEST(Address, SecretsInAnAddressAreRefusedAndNotRepeated) {
  for (const char* text :
       {"s3://KEY:SECRET@bucket/x", "s3://bucket/x?secret_key=SECRET", "s3://KEY:SECRET",
        "s3://KEY:SEC/SECRET@bucket/x", "s3://KEY:SEC/SECRET",
        "s3://KEY@bucket/x?secret_key=SECRET", "s3:/KEY:SECRET@bucket/x"}) {
    const std::string problem = problem_of(text);
    EXPECT_HAS(problem, "an address holds no credentials");
    EXPECT_EQ(problem.find("SECRET"), std::string::npos) << problem;
  }
}

TEST(Address, ASettingIsShownWithoutTheSecretsOfItsAddress) {
  EXPECT_EQ(without_secrets("a.b=\"s3://KEY:SECRET@bucket/x\""),
            "a.b=\"s3://...@bucket/x\"");
  EXPECT_EQ(without_secrets("a.b=s3://bucket/x?secret_key=SECRET"), "a.b=s3://bucket/x");
  for (const char* plain :
       {"a.b=s3://bucket/part-?.jsonl", "s3://bucket/202?/day=1/*.parquet", "a.b=1",
        "a.b=http://host:80/x", "a.b=/data/me@host"}) {
    EXPECT_EQ(without_secrets(plain), plain);
  }
}

}  // namespace
}  // namespace longhaul::objects
