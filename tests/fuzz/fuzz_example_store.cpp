#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/data/bert/example_store.h"
#include "longhaul/data/sources/token_source.h"

namespace {

using namespace longhaul;

/// A directory of packed examples whose files hold any bytes.
class Directory {
 public:
  Directory()
      : path_(fs::temp_directory_path() / fmt::format("fuzz_examples_{}", getpid())) {
    fs::create_directories(path_);
  }
  ~Directory() { fs::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  void write(const char* name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void read_all(const fs::path& path, bool verify) {
  const data::ExampleStore store(path, verify);
  const data::ExampleForm& form = store.info().form;
  const auto length = static_cast<size_t>(form.seq_len);
  std::vector<int32_t> values(3 * length);
  const std::span all(values);
  data::ExampleRow row{all.first(length), all.subspan(length, length), all.last(length)};
  for (int64_t i = 0; i < store.info().rows; ++i) {
    try {
      store.read(i, row);
    } catch (const InputError&) {
      continue;  // the next row may be a good one
    }
    const int64_t most = store.info().max_token_id;
    const bool sound = row.length >= 1 && row.length <= form.seq_len &&
                       row.next_sentence <= 1 &&
                       std::ranges::all_of(
                           row.tokens, [&](int32_t id) { return id >= 0 && id <= most; });
    if (!sound) __builtin_trap();
  }
}

}  // namespace

// Takes any bytes for the rows of packed examples whose record fits them, and for the
// record itself.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const Directory directory;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  for (const int token_bytes : {2, 4}) {
    data::ExampleStoreInfo info;
    info.form = {8, 3, token_bytes};
    info.rows = static_cast<int64_t>(size / info.form.bytes());
    info.max_token_id = 300;
    const size_t used = static_cast<size_t>(info.rows) * info.form.bytes();
    info.row_file = {data::kExampleRows, used, "0"};
    info.hash_file = {"hashes.json", 2, "0"};
    directory.write(data::kExampleRows, text.substr(0, used));
    directory.write("hashes.json", "{}");
    for (const std::string& record : {info.text(), std::string(text)}) {
      directory.write(data::kExampleStoreRecord, record);
      for (const bool verify : {false, true}) {
        try {
          read_all(directory.path(), verify);
        } catch (const InputError&) {
          // Any other input has to be refused with this error.
        }
      }
    }
  }
  return 0;
}
