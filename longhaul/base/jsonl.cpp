#include "longhaul/base/jsonl.h"

#include <string_view>

namespace longhaul {
namespace {

/// Cuts the file back to its last newline; returns the bytes cut.
uint64_t cut_torn_line(const fs::path& path) {
  if (!fs::exists(path)) return 0;
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

JsonLines::JsonLines(const fs::path& path)
    : repaired_(cut_torn_line(path)), file_(File::open_append(path)) {}

void JsonLines::append(const Json& object) { file_.write(object.dump() + "\n"); }

}  // namespace longhaul
