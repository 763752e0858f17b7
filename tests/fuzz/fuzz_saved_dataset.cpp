#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "longhaul/base/error.h"
#include "longhaul/data/sources/arrow_source.h"

namespace {

using namespace longhaul;

/// A save_to_disk directory whose only Arrow file holds any bytes.
class Directory {
 public:
  Directory()
      : path_(fs::temp_directory_path() / fmt::format("fuzz_saved_{}", getpid())) {
    fs::create_directories(path_);
    write("dataset_info.json", "{}");
    write("state.json", R"({"_data_files": [{"filename": "data.arrow"}]})");
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

void read_all(const fs::path& path, int64_t length) {
  const auto source = data::saved_dataset_source(path, length);
  source->limit_ids(300);
  data::TokenBatch batch;
  batch.resize(1, length);
  for (int64_t i = 0; i < source->num_sequences(); ++i) {
    try {
      source->read(i, batch, 0);
    } catch (const InputError&) {
      // The next row may be a good one.
    }
  }
}

}  // namespace

// Takes any bytes for the Arrow file of a data set that is trained from in place.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Directory directory;
  directory.write("data.arrow", {reinterpret_cast<const char*>(data), size});
  for (const int64_t length : {4, 16}) {
    try {
      read_all(directory.path(), length);
    } catch (const InputError&) {
      // Any other input has to be refused with this error.
    }
  }
  return 0;
}
