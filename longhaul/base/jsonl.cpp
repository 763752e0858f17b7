#include "longhaul/base/jsonl.h"

#include <string_view>
#include <utility>

namespace longhaul {
namespace {

/// Cuts the file back to its last newline; returns the bytes cut.
uint64_t cut_torn_line(const fs::path& path) {
  uint64_t whole = 0;
  uint64_t size = 0;
  {
    const MappedFile file(path);
    size = file.bytes().size();
    const size_t newline = size == 0 ? std::string_view::npos : file.text().rfind('\n');
    whole = newline == std::string_view::npos ? 0 : newline + 1;
  }
  if (whole < size) fs::resize_file(path, whole);
  return size - whole;
}

}  // namespace

// Opened first: a place that cannot be written is reported as such.
JsonLines::JsonLines(const fs::path& path,
                     std::function<void(const std::string& line)> tell)
    : file_(path), repaired_(cut_torn_line(path)) {
  file_.on_trouble(std::move(tell));
}

bool JsonLines::append(const Json& object) {
  // Invalid UTF-8 (a path, say) is replaced; it must not end a run.
  return file_.append(object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace longhaul
