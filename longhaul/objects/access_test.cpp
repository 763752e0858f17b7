#include "longhaul/objects/access.h"

#include <gtest/gtest.h>

namespace longhaul::objects {
namespace {

TEST(Access, LeavesPathsAloneAndIsTheSameWhereItWasCopied) {
  const Access one;
  const Access copy = one;
  const Access other;
  EXPECT_EQ(one.readable("data/store"), "data/store");
  EXPECT_EQ(one.pieces_at("data/store"), nullptr);
  EXPECT_EQ(one.store()->counts().requests, 0u);
  copy.paths()->note("/cache/ID/content/store", {"bucket", "store"});
  const std::string text = "/cache/ID/content/store/a: is damaged";
  EXPECT_EQ(one.with_addresses(text), "s3://bucket/store/a: is damaged");
  EXPECT_EQ(other.with_addresses(text), text);
}

}  // namespace
}  // namespace longhaul::objects
