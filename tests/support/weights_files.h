#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/format/safetensors.h"
#include "tests/support/message_of.h"

namespace longhaul::testing {

/// A directory of a test, which the destructor removes.
class TempDir {
 public:
  TempDir() {
    static int count = 0;
    path_ = fs::temp_directory_path() / ("longhaul_test_" + std::to_string(::getpid()) +
                                         "_" + std::to_string(count++));
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  const fs::path& path() const { return path_; }
  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

inline void write_file(const fs::path& path, std::string_view text) {
  fs::create_directories(path.parent_path());
  File file = File::create(path);
  file.write(text);
  file.close();
}

/// Returns the bytes of a file: length, header and data, without checks.
inline std::string safetensors_text(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + data;
}

/// Writes one F32 tensor per name. The elements count up from `value`.
inline void write_safetensors(const fs::path& path, const std::vector<std::string>& names,
                              const std::vector<int64_t>& shape, float value) {
  format::SafetensorsPlan plan;
  for (const std::string& name : names) plan.add(name, format::DType::F32, shape);
  format::SafetensorsWriter writer(path, plan);
  for (const format::SafetensorsEntry& entry : plan.entries) {
    std::vector<float> data((entry.end - entry.begin) / 4);
    for (float& x : data) x = value++;
    writer.append(std::as_bytes(std::span(data)));
  }
  writer.finish();
}

}  // namespace longhaul::testing

#define EXPECT_HAS(text, part)                    \
  EXPECT_NE((text).find(part), std::string::npos) \
      << "no '" << (part) << "' in: " << (text)
