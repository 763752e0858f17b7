#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "longhaul/base/error.h"
#include "longhaul/objects/protocol.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::objects {
namespace {

constexpr const char* kVariable = "LONGHAUL_OBJECTS_PATIENCE";

TEST(Patience, IsANumberOfSecondsOrRefused) {
  ::unsetenv(kVariable);
  EXPECT_EQ(patience_seconds(), 120.0);
  ::setenv(kVariable, "", 1);
  EXPECT_EQ(patience_seconds(), 120.0);
  ::setenv(kVariable, "2.5", 1);
  EXPECT_EQ(patience_seconds(), 2.5);
  ::setenv(kVariable, "0", 1);
  EXPECT_EQ(patience_seconds(), 0.0);
  for (const char* text : {"5s", "abc", "-1", "inf", "nan", "1 2"}) {
    ::setenv(kVariable, text, 1);
    EXPECT_HAS(message_of<InputError>([] { (void)patience_seconds(); }),
               "LONGHAUL_OBJECTS_PATIENCE is '" + std::string(text) + "'");
  }
  ::unsetenv(kVariable);
}

}  // namespace
}  // namespace longhaul::objects
