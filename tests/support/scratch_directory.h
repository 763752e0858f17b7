#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "longhaul/base/file.h"
#include "tests/support/message_of.h"

namespace longhaul {

/// A directory of the test's own, removed at its end.
class TestDirectory {
 public:
  TestDirectory() {
    std::string name = (fs::temp_directory_path() / "longhaul_base_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TestDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;
  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

inline void write_file(const fs::path& path, std::string_view text) {
  File file = File::create(path);
  file.write(text);
  file.close();
}

}  // namespace longhaul

#define EXPECT_HAS(text, part)                    \
  EXPECT_NE((text).find(part), std::string::npos) \
      << "no '" << (part) << "' in: " << (text)
