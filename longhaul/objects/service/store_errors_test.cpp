#include "longhaul/objects/service/store_errors.h"

#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"

namespace longhaul::objects {
namespace {

const Address kAddress{"bucket", "expired/accessdenied.jsonl"};
const std::string kWhen =
    "When reading information for key 'expired/accessdenied.jsonl' in bucket 'bucket': ";

Error error_of(const std::string& problem) {
  return store_error(kWhen + problem, kAddress, "read", 120.0);
}

TEST(StoreErrors, WhatMayPassIsTemporaryAndWhatIsRefusedIsNot) {
  const auto kind = [](const std::string& problem) { return error_of(problem).kind(); };
  EXPECT_EQ(kind("AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 28"),
            ErrorKind::Temporary);
  EXPECT_EQ(kind("AWS Error INTERNAL_FAILURE during GetObject operation: again"),
            ErrorKind::Temporary);
  EXPECT_EQ(kind("AWS Error ACCESS_DENIED during HeadObject operation: no"),
            ErrorKind::Input);
  // These errors are temporary, though their HTTP status is that of a refusal.
  for (const char* name : {"ExpiredToken", "TokenRefreshRequired", "RequestTimeout",
                           "ThrottlingException", "OperationAborted", "BadDigest"}) {
    EXPECT_EQ(kind(std::string("AWS Error UNKNOWN (HTTP status 400) during GetObject "
                               "operation: Unable to parse ExceptionName: ") +
                   name + " Message: some words"),
              ErrorKind::Temporary)
        << name;
  }
  const auto with_status = [&](int status) {
    return kind("AWS Error UNKNOWN (HTTP status " + std::to_string(status) +
                ") during GetObject operation: Message: something new");
  };
  for (const int status : {400, 401, 405, 409}) {
    EXPECT_EQ(with_status(status), ErrorKind::Input) << status;
  }
  for (const int status : {408, 429, 500, 503}) {
    EXPECT_EQ(with_status(status), ErrorKind::Temporary) << status;
  }
}

TEST(StoreErrors, WordsOfTheKeyDecideNothing) {
  const std::string passing =
      kWhen + "AWS Error SLOW_DOWN during GetObject operation: again";
  EXPECT_EQ(store_error(passing, kAddress, "read", 120.0).kind(), ErrorKind::Temporary);
  EXPECT_HAS(store_error(passing, kAddress, "read", 120.0).message(),
             "s3://bucket/expired/accessdenied.jsonl: cannot read it");
}

TEST(StoreErrors, ABucketOfAnotherRegionIsToldAsThat) {
  for (const char* problem :
       {"AWS Error UNKNOWN (HTTP status 301) during HeadBucket operation: No response "
        "body. Looks like the configured region is 'us-east-1'",
        "AWS Error UNKNOWN (HTTP status 400) during GetObject operation: Unable to parse "
        "ExceptionName: AuthorizationHeaderMalformed Message: expecting "
        "'eu-central-1'"}) {
    EXPECT_EQ(error_of(problem).kind(), ErrorKind::Input) << problem;
    EXPECT_HAS(error_of(problem).message(), "set AWS_REGION to the bucket's");
  }
}

TEST(StoreErrors, AKeyThatTheClientDoesNotTakeDoesNotPass) {
  const Error error = error_of("Empty path component in path bucket/expired//a.jsonl");
  EXPECT_EQ(error.kind(), ErrorKind::Input);
  EXPECT_HAS(error.message(), "a part of the key is empty");
}

TEST(StoreErrors, ABareRefusalOfHeadMayBeThatOfExpiredCredentials) {
  const std::string bare =
      "AWS Error UNKNOWN (HTTP status 400) during HeadObject operation: No response "
      "body.";
  EXPECT_EQ(error_of(bare).kind(), ErrorKind::Input);
  EXPECT_HAS(error_of(bare).message(), "the credentials have expired or the region");
  EXPECT_FALSE(says_expired(error_of(bare)));
  EXPECT_TRUE(says_expired(error_of("ExpiredToken Message: The token has expired.")));
}

}  // namespace
}  // namespace longhaul::objects
