#include "longhaul/train/step/key_watch.h"

#include <gtest/gtest.h>

namespace longhaul::train {
namespace {

TEST(KeyWatch, ALateKeyIsToldWithTheLastOneOfItsOperation) {
  const std::vector<device::CompiledKey> earlier = {
      {"aten::mul bf16[2,8]"}, {"aten::mul bf16[4,8]"}, {"aten::add bf16[4,8]"}};
  EXPECT_EQ(line_of_late_key({"aten::mul bf16[3,8]"}, earlier),
            "aten::mul bf16[3,8]; compiled before: aten::mul bf16[4,8]");
  EXPECT_EQ(line_of_late_key({"aten::mul_ bf16[3,8]"}, earlier), "aten::mul_ bf16[3,8]");
}

}  // namespace
}  // namespace longhaul::train
