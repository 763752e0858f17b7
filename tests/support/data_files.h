#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <zlib.h>

#include <functional>
#include <set>
#include <string>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"

namespace longhaul::data {

/// A directory for one test. The destructor removes it.
class TestDirectory {
 public:
  TestDirectory() {
    std::string name = (fs::temp_directory_path() / "longhaul_data_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TestDirectory() { fs::remove_all(path_); }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  fs::path operator/(const std::string& name) const { return path_ / name; }
  fs::path write(const std::string& name, std::string_view text) const {
    File file = File::create(path_ / name);
    file.write(text);
    return path_ / name;
  }
  /// Returns the names in the directory, sorted and joined by blanks.
  std::string listing() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_)) {
      names.insert(entry.path().filename().string());
    }
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
    return text;
  }

 private:
  fs::path path_;
};

inline std::string gzipped(const std::string& text) {
  std::string out(compressBound(text.size()) + 64, '\0');
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// Returns the message of the InputError that `act` throws. The test fails when `act`
/// throws none.
inline std::string input_error(const std::function<void()>& act) {
  try {
    act();
  } catch (const InputError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no InputError";
  return {};
}

inline bool has_part(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace longhaul::data

/// Expects that `text` contains `part`. Both arguments are evaluated once.
#define EXPECT_HAS(text, part) EXPECT_PRED2(longhaul::data::has_part, text, part)
